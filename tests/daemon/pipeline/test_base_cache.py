from __future__ import annotations

from pathlib import Path

import pytest
import torch

from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.base import READABLE_DTYPES, TensorInfo
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.pipeline.base_cache import CacheWriter, evict
from foreshock.daemon.pipeline.request import CacheOrder


def info(name: str, tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def write(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    with CacheWriter(path, [info(n, t) for n, t in tensors.items()], {"who": "test"}) as writer:
        for name, tensor in reversed(tensors.items()):
            writer.write(name, tensor)
        return writer.finish()


def test_what_is_cached_is_read_back_bit_for_bit_by_the_reader_of_safetensors(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        dtype: torch.randn(5, 7, generator=generator).to(getattr(torch, dtype)) for dtype in READABLE_DTYPES
    }
    tensors["transposed"] = torch.randn(3, 4, generator=generator).T
    path = tmp_path / "cache" / "step-1.safetensors"
    assert write(path, tensors) == ""
    checkpoint = open_checkpoint(path)
    files = Files(checkpoint.root)
    for name, tensor in tensors.items():
        held = read_tensor(checkpoint, name, files)
        assert torch.equal(held.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))
    assert checkpoint.metadata["who"] == "test"


def test_nothing_is_visible_until_every_tensor_is_there(tmp_path: Path) -> None:
    path = tmp_path / "step-1.safetensors"
    tensor = torch.ones(2, 2)
    with CacheWriter(path, [info("a", tensor), info("b", tensor)], {}) as writer:
        writer.write("a", tensor)
        assert not path.exists()
        assert "1 tensors could not be read" in writer.finish()
    assert list(tmp_path.iterdir()) == []


def test_an_exception_leaves_nothing_behind(tmp_path: Path) -> None:
    tensor = torch.ones(2, 2)
    with (
        pytest.raises(RuntimeError),
        CacheWriter(tmp_path / "step-1.safetensors", [info("a", tensor)], {}) as writer,
    ):
        writer.write("a", tensor)
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_costs_the_cache_and_not_the_measurement(tmp_path: Path) -> None:
    tensor = torch.ones(2, 2)
    with CacheWriter(tmp_path / "step-1.safetensors", [info("a", tensor)], {}) as writer:
        writer._file.close()
        writer._file = Path("/dev/full").open("wb", buffering=0)  # type: ignore[assignment]
        writer.write("a", tensor)
        assert "No space left" in writer.finish()
    assert not (tmp_path / "step-1.safetensors").exists()


def test_what_no_later_difference_needs_is_removed(tmp_path: Path) -> None:
    for step in range(1, 6):
        write(tmp_path / f"step-{step}.safetensors", {"a": torch.ones(2, 2)})
    (tmp_path / "step-9.safetensors.partial").write_bytes(b"left by a crash")
    keep = (str(tmp_path / "step-3.safetensors"), str(tmp_path / "step-4.safetensors"))
    assert evict(CacheOrder(str(tmp_path / "step-5.safetensors"), keep, 1 << 30)) == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-{n}.safetensors" for n in (3, 4, 5)]


def test_over_the_bound_the_oldest_go_first_and_are_named(tmp_path: Path) -> None:
    paths = [tmp_path / f"step-{step}.safetensors" for step in (1, 2, 3)]
    for path in paths:
        write(path, {"a": torch.ones(64, 64)})
    size = paths[0].stat().st_size
    order = CacheOrder(str(paths[2]), tuple(map(str, paths[:2])), 2 * size)
    assert evict(order) == ("step-1.safetensors",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2.safetensors", "step-3.safetensors"]
