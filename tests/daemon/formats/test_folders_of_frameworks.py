"""Frameworks that keep the weights in a folder: which one, when it is whole, and who else would read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from foreshock.daemon.discovery.scan import Condition, Scanner
from foreshock.daemon.errors import IncompleteCheckpoint
from foreshock.daemon.formats import claims_on, open_checkpoint
from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.layouts import write_dcp_grid, write_safetensors
from tests.writers.weights import same_bits, sample_weights

FOLDERS = [
    ("accelerate_fsdp", "pytorch_model_fsdp_0", "optimizer_0", ""),
    ("olmo_core", "model_and_optim", "", ".metadata.json"),
    ("llama_factory", "model", "optimizer", "CHECKPOINT_COMPLETE"),
]

framework = pytest.mark.parametrize(
    ("name", "folder", "other", "marker"), FOLDERS, ids=[f[0] for f in FOLDERS]
)


def write(root: Path, folder: str, other: str, marker: str) -> None:
    """The weights in their folder, others in the optimizer's, and the marker last."""
    write_dcp_grid(root / folder, sample_weights())
    if other:
        write_dcp_grid(root / other, {"state.exp_avg": next(iter(sample_weights().values()))})
    if marker:
        (root / marker).write_text("{}")


@framework
def test_the_weights_are_those_of_the_folder(
    tmp_path: Path, name: str, folder: str, other: str, marker: str
) -> None:
    write(tmp_path, folder, other, marker)

    checkpoint = open_checkpoint(tmp_path)

    assert checkpoint.format == name
    assert checkpoint.tensors.keys() == sample_weights().keys()
    assert all(file.startswith(f"{folder}/") for file in checkpoint.files)
    files = Files(checkpoint.root)
    for each, weight in sample_weights().items():
        assert same_bits(read_tensor(checkpoint, each, files), weight), each


@framework
def test_without_the_last_file_it_is_incomplete(
    tmp_path: Path, name: str, folder: str, other: str, marker: str
) -> None:
    write(tmp_path, folder, other, marker)
    (tmp_path / (marker or f"{folder}/.metadata")).unlink()

    with pytest.raises(IncompleteCheckpoint, match="written last"):
        open_checkpoint(tmp_path)


@framework
def test_a_scan_sees_it_complete_and_then_overwritten_in_its_folder(
    tmp_path: Path, name: str, folder: str, other: str, marker: str
) -> None:
    step = tmp_path / "step_10"
    step.mkdir()
    write(step, folder, other, marker)
    scanner = Scanner(tmp_path, settle_seconds=0)

    (before,) = scanner.scan({}).sightings
    shard = next((step / folder).glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[::-1])
    (after,) = scanner.scan({}).sightings

    assert before.condition is Condition.COMPLETE
    assert before.signature != after.signature


def test_the_stricter_format_wins_and_every_claim_has_its_reason(tmp_path: Path) -> None:
    write(tmp_path, "pytorch_model_fsdp_0", "optimizer_0", "")
    write_safetensors(tmp_path, sample_weights())

    claims = claims_on(Location.of(tmp_path).names_meant())

    assert [(claim.format.name, claim.reason) for claim in claims] == [
        ("accelerate_fsdp", "pytorch_model_fsdp_0/.metadata"),
        ("safetensors", "model.safetensors"),
    ]


def test_of_two_models_the_first_is_read_and_a_note_names_the_other(tmp_path: Path) -> None:
    for number in (0, 1):
        write(tmp_path, f"pytorch_model_fsdp_{number}", "", "")

    checkpoint = open_checkpoint(tmp_path)

    assert checkpoint.notes == ("only pytorch_model_fsdp_0 is read, not pytorch_model_fsdp_1",)


def test_an_optimizer_alone_is_no_checkpoint_of_weights(tmp_path: Path) -> None:
    write_dcp_grid(tmp_path / "optimizer_0", sample_weights())

    assert claims_on(Location.of(tmp_path).names_meant()) == ()
