"""The pipeline over real files: what it reads, what it says of the odd ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from foreshock.daemon.errors import UnsupportedCheckpoint, VanishedCheckpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.monitors import CATALOGUE
from foreshock.daemon.pipeline.measure import Outcome, measure
from foreshock.daemon.pipeline.request import Base, CacheOrder, MeasureRequest, Source
from foreshock.daemon.pipeline.training_log import METRICS
from foreshock.storage.records import Sample

CONFIG = {
    "model_type": "mixtral",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
    "num_local_experts": 4,
}


def weights(seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"q": 32, "k": 16, "v": 16, "o": 32}
    found = {
        f"model.layers.{layer}.self_attn.{role}_proj.weight": torch.randn(rows, 32, generator=generator)
        for layer in range(2)
        for role, rows in shapes.items()
    }
    for layer in range(2):
        name = f"model.layers.{layer}"
        found[f"{name}.block_sparse_moe.gate.weight"] = torch.randn(4, 32, generator=generator)
        found[f"{name}.post_attention_layernorm.weight"] = torch.ones(32)
    return found


def moved(tensors: Mapping[str, Tensor], seed: int, size: float = 0.01) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: t + size * torch.randn(t.shape, generator=generator) for name, t in tensors.items()}


class Run:
    """A directory of checkpoints."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, step: int, tensors: Mapping[str, Tensor]) -> Source:
        directory = self.root / f"checkpoint-{step}"
        directory.mkdir(parents=True)
        save_file(dict(tensors), directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps(CONFIG))
        return Source(step, str(directory))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def measured(request: MeasureRequest) -> tuple[list[Sample], Outcome]:
    *events, outcome = measure(request)
    assert isinstance(outcome, Outcome)
    return [sample for event in events if isinstance(event, list) for sample in event], outcome


def test_every_sample_is_in_the_catalogue_and_stands_once(run: Run) -> None:
    first = run.save(1, weights())
    second = run.save(2, moved(weights(), 1))
    third = run.save(3, moved(weights(), 2))
    samples, outcome = measured(MeasureRequest(third, (Base(1, second, first), Base(2, first))))
    assert outcome.problems == []
    names = [metric.name for metric in (*CATALOGUE, *METRICS)]
    assert len(set(names)) == len(names)
    assert {sample.key.metric for sample in samples} <= set(names)
    assert len({(sample.key, sample.step) for sample in samples}) == len(samples)
    assert {sample.base_step for sample in samples if sample.key.lag == 1} == {2}
    assert {sample.base_step for sample in samples if sample.key.lag == 2} == {1}
    assert {sample.base_step for sample in samples if sample.key.lag == 0} == {None}
    families = {sample.key.metric.split(".")[0] for sample in samples}
    assert families == {
        "update",
        "weight",
        "qk",
        "qk_increment",
        "qk_first_order",
        "qk_second_order",
        "router",
    }


def test_no_byte_of_tensor_data_is_read_twice_for_a_lag(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run.save(1, weights()), run.save(2, moved(weights(), 1))
    reads: list[tuple[str, int, int]] = []
    real = Files.read_into

    def recorded(self: Files, name: str, offset: int, buffer: memoryview) -> None:
        reads.append((str(self.root / name), offset, len(buffer)))
        real(self, name, offset, buffer)

    monkeypatch.setattr(Files, "read_into", recorded)
    measured(MeasureRequest(second, (Base(1, first),)))
    for source in (first, second):
        file = Path(source.path) / "model.safetensors"
        header = 8 + int.from_bytes(file.read_bytes()[:8], "little")
        data = sorted((o, n) for name, o, n in reads if name == str(file) and o >= header)
        assert sum(length for _, length in data) == file.stat().st_size - header
        assert all(a + n <= b for (a, n), (b, _) in pairwise(data))


def cached(tmp_path: Path, step: int) -> str:
    return str(tmp_path / "cache" / f"step-{step:020d}.safetensors")


def test_a_base_from_the_cache_gives_the_very_same_samples(run: Run, tmp_path: Path) -> None:
    first, second = run.save(1, weights()), run.save(2, moved(weights(), 1))
    order = CacheOrder(cached(tmp_path, 1), (), 1 << 30)
    measured(MeasureRequest(first, cache=order))
    expected, _ = measured(MeasureRequest(second, (Base(1, first),)))
    gone = Source(1, str(run.root / "deleted"), "signature", cached(tmp_path, 1))
    found, outcome = measured(MeasureRequest(second, (Base(1, gone),)))
    assert found == expected
    assert outcome.notes == []


def test_a_base_that_is_gone_costs_its_lag_and_is_noted(run: Run) -> None:
    second = run.save(2, weights())
    samples, outcome = measured(MeasureRequest(second, (Base(1, Source(1, str(run.root / "absent"))),)))
    assert {sample.key.lag for sample in samples} == {0}
    assert any("no differences over lag 1" in note for note in outcome.notes)


def test_a_base_that_was_overwritten_is_not_used(run: Run) -> None:
    first, second = run.save(1, weights()), run.save(2, moved(weights(), 1))
    samples, _ = measured(MeasureRequest(second, (Base(1, Source(1, first.path, "another signature")),)))
    assert {sample.key.lag for sample in samples} == {0}


def reasons(samples: list[Sample], metric: str = "update.effective_rank") -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for sample in samples:
        if sample.key.metric == metric and not sample.key.unit:
            found.setdefault(f"{sample.key.layer}.{sample.key.role}", set()).add(sample.reason)
    return found


def test_the_same_weights_twice_are_an_identical_checkpoint(run: Run) -> None:
    first, second = run.save(1, weights()), run.save(2, weights())
    samples, _ = measured(MeasureRequest(second, (Base(1, first),)))
    assert set.union(*reasons(samples).values()) == {"identical_checkpoint"}
    norms = [s.value for s in samples if s.key.metric == "update.frobenius_norm"]
    assert set(norms) == {0.0}


def test_one_unmoved_parameter_is_frozen(run: Run) -> None:
    after = moved(weights(), 1)
    name = "model.layers.1.self_attn.q_proj.weight"
    after[name] = weights()[name]
    samples, _ = measured(MeasureRequest(run.save(2, after), (Base(1, run.save(1, weights())),)))
    found = reasons(samples)
    assert found["1.q"] == {"frozen_parameter"}
    assert found["0.q"] == {""}


def test_an_update_that_the_dtype_swallows_is_not_called_frozen(run: Run) -> None:
    before = {name: t.bfloat16() for name, t in weights().items()}
    after = {name: t.clone() for name, t in before.items()}
    for name in list(after)[:4]:  # a few elements of the others step to the next value
        after[name].view(torch.int16).flatten()[:3] += 1
    samples, _ = measured(MeasureRequest(run.save(2, after), (Base(1, run.save(1, before)),)))
    found = reasons(samples)
    assert {"below_dtype_resolution"} in found.values()
    assert {"frozen_parameter"} not in found.values()


def test_nan_and_inf_are_counted_and_never_decomposed(run: Run) -> None:
    after = moved(weights(), 1)
    after["model.layers.0.self_attn.q_proj.weight"][0, :3] = torch.tensor([float("nan"), float("inf"), 1.0])
    samples, outcome = measured(MeasureRequest(run.save(2, after), (Base(1, run.save(1, weights())),)))
    assert outcome.problems == []
    counts = {
        (s.key.layer, s.key.role): s.value for s in samples if s.key.metric == "weight.nonfinite" and s.value
    }
    assert counts == {(0, "q"): 2.0}
    assert reasons(samples)["0.q"] == {"nonfinite"}
    assert reasons(samples)["0.k"] == {""}


def test_a_matrix_that_changed_its_shape_is_named(run: Run) -> None:
    after = moved(weights(), 1)
    after["model.layers.0.block_sparse_moe.gate.weight"] = torch.ones(5, 32)
    samples, _ = measured(MeasureRequest(run.save(2, after), (Base(1, run.save(1, weights())),)))
    assert reasons(samples)["0.router"] == {"shape_changed"}


def test_a_layer_that_the_base_lacks_is_noted(run: Run) -> None:
    before = {name: tensor for name, tensor in weights().items() if ".layers.0." in name}
    request = MeasureRequest(run.save(2, weights()), (Base(1, run.save(1, before)),))
    samples, outcome = measured(request)
    assert {s.key.layer for s in samples if s.key.lag} == {0}
    assert any("layer 1 is not in step 1" in note for note in outcome.notes)


def test_a_checkpoint_without_any_known_role_is_unsupported(run: Run) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="known role"):
        measured(MeasureRequest(run.save(1, {"encoder.weight": torch.ones(4, 4)})))


def test_a_checkpoint_that_changes_meanwhile_gives_no_outcome(run: Run) -> None:
    source = run.save(1, weights())

    def events() -> Iterator[object]:
        for number, event in enumerate(measure(MeasureRequest(source))):
            if number == 2:
                file = Path(source.path) / "model.safetensors"
                file.write_bytes(file.read_bytes())
            yield event

    with pytest.raises(VanishedCheckpoint):
        list(events())


def test_an_interrupted_measurement_leaves_no_file_in_the_cache(run: Run, tmp_path: Path) -> None:
    order = CacheOrder(cached(tmp_path, 1), (), 1 << 30)
    going = measure(MeasureRequest(run.save(1, weights()), cache=order))
    for _ in range(4):
        next(going)
    going.close()
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_dtype_that_cannot_be_measured_costs_its_tensor_and_is_named(run: Run) -> None:
    tensors = weights()
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.ones(32, 32, dtype=torch.int8)
    samples, outcome = measured(MeasureRequest(run.save(1, tensors)))
    assert any("int8" in problem for problem in outcome.problems)
    assert {s.key.role for s in samples if s.key.layer == 0} >= {"k", "v", "o", "router"}


def test_a_cache_that_cannot_be_written_costs_no_measurement(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a directory should be")
    order = CacheOrder(cached(tmp_path, 1), (), 1 << 30)
    samples, outcome = measured(MeasureRequest(run.save(1, weights()), cache=order))
    assert samples
    assert outcome.problems == []
    assert any(note.startswith("base cache:") for note in outcome.notes)
