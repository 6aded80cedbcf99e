import pytest

from foreshock.daemon.discovery.names import may_hold_its_step, step_in_content, step_in_name


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("checkpoint-500", 500),
        ("checkpoint_500", 500),
        ("step-500", 500),
        ("step_500", 500),
        ("step500", 500),
        ("iter_0000500", 500),
        ("global_step500", 500),
        ("global_step_500", 500),
        ("epoch=0-step=500.ckpt", 500),
        ("gpt-epoch=3-step=500.ckpt", 500),
        ("epoch_0_step_69999", 69999),
        ("ckpt_500.pt", 500),
        ("model_000500.pt", 500),
        ("500", 500),
        ("00000500", 500),
        ("checkpoint-0", 0),
        ("checkpoint-500.safetensors", 500),
    ],
)
def test_each_framework_s_name_tells_its_step(name: str, step: int) -> None:
    assert step_in_name(name) == step


@pytest.mark.parametrize(
    "name",
    [
        "step-100.backup",
        "foo-step-100",
        "step-100-merged",
        "checkpoint-best",
        "checkpoint_old",
        "step-1e3",
        "step--5",
        "step-" + "9" * 30,
        "step-9999999999999999999",
        "checkpoint-30-tmp",
        "tmp-checkpoint-30",
        ".staging_step-30",
        "step_30.tmp",
        "checkpoint-30.incomplete",
        "500.orbax-checkpoint-tmp",
        "wandb",
        "optimizer.pt",
        "events.out.tfevents.1",
        "",
    ],
)
def test_staging_backup_and_other_names_tell_no_step(name: str) -> None:
    assert step_in_name(name) is None


@pytest.mark.parametrize("name", ["ckpt.pt", "last.ckpt", "model.pth"])
def test_a_weight_file_without_a_step_in_its_name_may_hold_it(name: str) -> None:
    assert may_hold_its_step(name)


@pytest.mark.parametrize("name", [".ckpt.pt", "ckpt.pt.tmp", "tmp_ckpt.pt", "ckpt.backup.pt", "notes.txt"])
def test_a_hidden_staging_or_foreign_file_is_not_asked_for_its_step(name: str) -> None:
    assert not may_hold_its_step(name)


@pytest.mark.parametrize("key", ["iter_num", "global_step", "step", "iteration"])
def test_the_step_in_a_file_s_own_content(key: str) -> None:
    assert step_in_content({key: 42, "loss": 1.0}) == 42


@pytest.mark.parametrize("value", [-1, True, 1.5, "7", None, 1 << 63])
def test_what_is_no_step_in_the_content_is_not_taken_for_one(value: object) -> None:
    assert step_in_content({"step": value}) is None
