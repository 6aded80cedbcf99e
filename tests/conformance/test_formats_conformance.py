"""What every format promises, asked of all of them with the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreshock.daemon.errors import UnsupportedCheckpoint
from foreshock.daemon.formats import FORMATS, open_checkpoint
from foreshock.daemon.formats.base import READABLE_DTYPES
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.formats.within import Within
from tests.writers.layout import Layout
from tests.writers.layouts import LAYOUTS
from tests.writers.opening import Saved, files_below, open_counting
from tests.writers.weights import random_bits, same_bits, sample_counters, sample_weights

MAX_CHUNK_HEADER_BYTES = 4096

row_bounds = st.none() | st.integers(-8, 8)


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def test_the_layouts_cover_every_format() -> None:
    folders = {format_.name for format_ in FORMATS if isinstance(format_, Within)}
    rest = {format_.name for format_ in FORMATS} - folders
    covered = {layout.format for layout in LAYOUTS}
    assert rest <= covered
    assert covered & folders  # one stands for all: they differ in names alone


def test_the_weights_cover_every_readable_dtype() -> None:
    assert {dtype_name(tensor) for tensor in sample_weights().values()} == set(READABLE_DTYPES)


def test_every_tensor_is_named_with_shape_and_dtype(saved: Saved) -> None:
    checkpoint = open_checkpoint(saved.path)
    expected = {
        saved.layout.prefix + name: (tuple(tensor.shape), dtype_name(tensor))
        for name, tensor in (saved.weights | saved.counters).items()
    }
    found = {name: (info.shape, info.dtype) for name, info in checkpoint.tensors.items()}
    found.pop("best_val_loss", None)
    assert found == expected
    assert all(info.name == name for name, info in checkpoint.tensors.items())
    assert list(checkpoint.tensors) == sorted(checkpoint.tensors)


def test_the_checkpoint_says_what_read_it_and_from_where(saved: Saved) -> None:
    checkpoint = open_checkpoint(saved.path)
    assert checkpoint.format == saved.layout.format
    assert checkpoint.root == saved.path
    assert sorted(checkpoint.files) == files_below(saved.path)
    assert checkpoint.notes == ()


@pytest.mark.parametrize("name", sample_weights())
def test_a_tensor_is_read_bit_for_bit(saved: Saved, name: str) -> None:
    assert same_bits(saved.read(name), saved.weights[name])


@given(name=st.sampled_from(list(sample_weights())), start=row_bounds, stop=row_bounds)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_range_of_rows_is_the_slice_of_the_whole(
    saved: Saved, name: str, start: int | None, stop: int | None
) -> None:
    weight = saved.weights[name]
    rows = slice(start, stop)
    expected = weight[rows] if weight.dim() else weight
    assert same_bits(saved.read(name, rows), expected)


@pytest.mark.parametrize("name", sample_counters())
def test_a_tensor_of_integers_is_named_and_refused(saved: Saved, name: str) -> None:
    dtype = dtype_name(saved.counters[name])
    with pytest.raises(UnsupportedCheckpoint, match=f"{name}.* is {dtype};"):
        saved.read(name)


def test_an_unknown_name_is_a_key_error(saved: Saved) -> None:
    with pytest.raises(KeyError):
        saved.read("no.such.weight")


def test_the_pieces_of_a_tensor_cover_it_exactly_once(saved: Saved) -> None:
    checkpoint = open_checkpoint(saved.path)
    for name, weight in saved.weights.items():
        hits = torch.zeros(weight.shape, dtype=torch.int32)
        for piece in checkpoint.pieces(saved.layout.prefix + name):
            hits[tuple(slice(d, d + n) for d, n in zip(piece.destination, piece.shape, strict=True))] += 1
        assert torch.equal(hits, torch.ones_like(hits)), name


def test_opening_reads_headers_only(layout: Layout, tmp_path: Path) -> None:
    weights = {f"layers.{i}.weight": random_bits((1024, 512), torch.float32, i) for i in range(3)}
    layout.write(tmp_path, weights)
    _, files = open_counting(tmp_path)
    assert 0 < files.bytes_read < 40_000
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) > 6_000_000


def test_reading_a_tensor_reads_its_bytes_and_the_headers_of_its_chunks(saved: Saved) -> None:
    for name, weight in saved.weights.items():
        checkpoint, headers = open_counting(saved.path)
        num_pieces = len(list(checkpoint.pieces(saved.layout.prefix + name)))
        before = headers.bytes_read
        data = Files(saved.path)
        read_tensor(checkpoint, saved.layout.prefix + name, data)
        assert data.bytes_read == weight.nbytes
        assert headers.bytes_read - before <= num_pieces * MAX_CHUNK_HEADER_BYTES


def test_reading_rows_reads_only_their_chunks(layout: Layout, tmp_path: Path) -> None:
    weight = random_bits((64, 96), torch.float32, 1)
    layout.write(tmp_path, {"weight": weight, "other": random_bits((8, 8), torch.float32, 2)})
    checkpoint = open_checkpoint(tmp_path)
    files = Files(tmp_path)
    rows = read_tensor(checkpoint, f"{layout.prefix}weight", files, slice(17, 19))
    assert same_bits(rows, weight[17:19])
    assert files.bytes_read == weight[17:19].nbytes


def test_nothing_is_held_open_once_a_call_returns(saved: Saved) -> None:
    checkpoint, files = open_counting(saved.path)
    for name in saved.weights:
        pieces = checkpoint.pieces(saved.layout.prefix + name)
        next(pieces, None)  # a reader may stop half way, or stop using the iterator at all
        read_tensor(checkpoint, saved.layout.prefix + name, files)
        targets = {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}
        assert not any(target.startswith(str(saved.path)) for target in targets)
