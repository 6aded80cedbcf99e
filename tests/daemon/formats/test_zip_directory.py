"""Zip archives that tell the truth, and every lie that one can tell."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
)
from foreshock.daemon.formats import zip_directory
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.zip_directory import Archive, read_archive
from tests.writers.raw_zip import RawArchive, RawMember

BIG = 0xFFFFFFFF


def archive(*, zip64: bool = True) -> RawArchive:
    members = [
        RawMember("x/data.pkl", b"pickle", local_extra=b"FB\x08\x00ZZZZZZZZ"),
        RawMember("x/data/0", b"storage"),
        RawMember("x/empty", b""),
    ]
    return RawArchive(members, zip64=zip64)


def opened(tmp_path: Path, content: bytes, **place: int) -> tuple[Archive, Files]:
    (tmp_path / "a.pt").write_bytes(content)
    files = Files(tmp_path)
    return read_archive(files, "a.pt", **place), files


@pytest.mark.parametrize("zip64", [True, False])
@pytest.mark.parametrize("before", [b"", b"another archive before it PK\x05\x06"])
def test_members_are_found_wherever_the_archive_lies(tmp_path: Path, zip64: bool, before: bytes) -> None:
    content = archive(zip64=zip64).to_bytes()
    found, files = opened(tmp_path, before + content + b"after", start=len(before), length=len(content))
    assert sorted(found.members) == ["data.pkl", "data/0", "empty"]
    assert found.read(files, "data.pkl", limit=10) == b"pickle"
    assert found.read(files, "data/0", limit=10) == b"storage"
    assert found.read(files, "empty", limit=10) == b""


def test_what_the_standard_library_writes_is_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        file.writestr("top/data.pkl", b"pickle")
        file.writestr("top/data/0", b"storage")
        file.comment = b"said by PK a commentator"
    found, files = opened(tmp_path, buffer.getvalue())
    assert found.read(files, "data/0", limit=10) == b"storage"


def test_what_torch_writes_lies_where_torch_says(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    weight = torch.arange(100.0)
    torch.save({"w": weight}, buffer)
    found, files = opened(tmp_path, buffer.getvalue())
    assert found.read(files, "data/0", limit=400) == weight.numpy().tobytes()
    assert found.data_offset(files, "data/0") % 64 == 0


def test_a_wide_number_is_taken_from_the_extra_field(tmp_path: Path) -> None:
    raw = archive()
    size = len(raw.members[1].data)
    raw.members[1].size = raw.members[1].packed = BIG
    raw.members[1].central_extra = b"\x99\x00\x02\x00zz" + struct.pack("<HHQQ", 1, 16, size, size)
    found, files = opened(tmp_path, raw.to_bytes())
    assert found.read(files, "data/0", limit=10) == b"storage"


def test_a_member_larger_than_the_limit_is_not_read(tmp_path: Path) -> None:
    found, files = opened(tmp_path, archive().to_bytes())
    before = files.bytes_read
    with pytest.raises(CorruptCheckpoint, match="member 'data/0' has 7 bytes, the limit is 6"):
        found.read(files, "data/0", limit=6)
    assert files.bytes_read == before


def lying(change: Callable[[RawArchive], None]) -> bytes:
    raw = archive()
    change(raw)
    return raw.to_bytes()


def set_member(index: int, **values: object) -> Callable[[RawArchive], None]:
    def change(raw: RawArchive) -> None:
        for name, value in values.items():
            setattr(raw.members[index], name, value)

    return change


def set_archive(**values: object) -> Callable[[RawArchive], None]:
    def change(raw: RawArchive) -> None:
        for name, value in values.items():
            setattr(raw, name, value)

    return change


LIES: list[tuple[str, Callable[[RawArchive], None], type[CheckpointError], str]] = [
    ("deflated", set_member(1, method=8), UnsupportedCheckpoint, "compressed or encrypted"),
    ("zstandard", set_member(1, method=93), UnsupportedCheckpoint, "compressed or encrypted"),
    ("encrypted", set_member(1, flags=1), UnsupportedCheckpoint, "compressed or encrypted"),
    ("two sizes", set_member(1, packed=3), CorruptCheckpoint, "claims 7 and 3 bytes"),
    ("size beyond", set_member(1, size=700), CorruptCheckpoint, "on another's bytes or outside"),
    ("same header", set_member(1, header=0), CorruptCheckpoint, "on another's bytes or outside"),
    ("header inside", set_member(1, header=20), CorruptCheckpoint, "on another's bytes or outside"),
    ("header beyond", set_member(1, header=10_000), CorruptCheckpoint, "on another's bytes or outside"),
    ("same name", set_member(1, name="x/data.pkl"), CorruptCheckpoint, "two zip members are named"),
    ("two folders", set_member(1, name="y/data/0"), UnsupportedCheckpoint, "not one that torch.save wrote"),
    ("no folder", set_member(1, name="data"), UnsupportedCheckpoint, "not one that torch.save wrote"),
    ("saturated", set_member(1, size=BIG), CorruptCheckpoint, "zip64 sizes are missing"),
    (
        "short extra",
        set_member(1, size=BIG, central_extra=struct.pack("<HHL", 1, 4, 7)),
        CorruptCheckpoint,
        "zip64 sizes are missing",
    ),
    (
        "wide lie",
        set_member(1, size=BIG, packed=BIG, central_extra=struct.pack("<HHQQ", 1, 16, 1 << 40, 1 << 40)),
        CorruptCheckpoint,
        "on another's bytes or outside",
    ),
    ("fewer", set_archive(end={"count": 2}, end64={"count": 2}), CorruptCheckpoint, "2 zip members end at"),
    ("more", set_archive(end={"count": 4}, end64={"count": 4}), CorruptCheckpoint, "4 zip members in"),
    ("narrow count", set_archive(end={"count": 2}), CorruptCheckpoint, "contradict each other"),
    ("narrow offset", set_archive(end={"offset": 7}), CorruptCheckpoint, "contradict each other"),
    ("wide count", set_archive(end64={"count": 1 << 40}), CorruptCheckpoint, "contradict each other"),
    ("wide size", set_archive(end64={"size": 1 << 62}), CorruptCheckpoint, "contradict each other"),
    ("locator", set_archive(locator=1 << 60), CorruptCheckpoint, "zip64 end record is missing or unsound"),
    ("locator near", set_archive(locator=5), CorruptCheckpoint, "zip64 end record is missing or unsound"),
    ("no members", set_archive(members=[]), UnsupportedCheckpoint, "not one that torch.save wrote"),
]


@pytest.mark.parametrize(
    ("change", "kind", "reason"), [lie[1:] for lie in LIES], ids=[lie[0] for lie in LIES]
)
def test_a_lie_in_the_directory_is_found(
    tmp_path: Path, change: Callable[[RawArchive], None], kind: type[CheckpointError], reason: str
) -> None:
    with pytest.raises(CheckpointError, match=reason) as raised:
        opened(tmp_path, lying(change))
    assert raised.type is kind


def test_an_offset_without_zip64_must_end_at_the_end_record(tmp_path: Path) -> None:
    raw = archive(zip64=False)
    raw.end = {"offset": 3}
    with pytest.raises(CorruptCheckpoint, match="does not end at the end records"):
        opened(tmp_path, raw.to_bytes())


def test_a_saturated_number_without_a_zip64_record_is_corrupt(tmp_path: Path) -> None:
    raw = archive(zip64=False)
    raw.end = {"offset": BIG}
    with pytest.raises(CorruptCheckpoint, match="does not end at the end records"):
        opened(tmp_path, raw.to_bytes())


def test_a_local_header_that_pushes_its_data_into_the_next_member_is_corrupt(tmp_path: Path) -> None:
    """The directory cannot show it: only the local header knows how long its own extra field is."""
    content = bytearray(archive().to_bytes())
    at = content.index(b"PK\x03\x04", 4)
    struct.pack_into("<H", content, at + 28, 40)
    found, files = opened(tmp_path, bytes(content))
    with pytest.raises(CorruptCheckpoint, match="member 'data/0' has no sound local header"):
        found.read(files, "data/0", limit=10)
    assert found.read(files, "data.pkl", limit=10) == b"pickle"


def test_a_member_without_a_local_header_is_corrupt(tmp_path: Path) -> None:
    content = archive().to_bytes().replace(b"PK\x03\x04", b"PK\x03\x05", 1)
    found, files = opened(tmp_path, content)
    with pytest.raises(CorruptCheckpoint, match=r"member 'data\.pkl' has no sound local header"):
        found.read(files, "data.pkl", limit=10)


def test_too_many_members_are_refused_before_the_directory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zip_directory, "MAX_MEMBERS", 2)
    with pytest.raises(UnsupportedCheckpoint, match="3 zip members, the limit is 2"):
        opened(tmp_path, archive().to_bytes())


@pytest.mark.parametrize("rest", [b"x", b"\0" * 100, b"y" * 70_000])
def test_bytes_after_the_end_record_are_not_ignored(tmp_path: Path, rest: bytes) -> None:
    with pytest.raises((CorruptCheckpoint, IncompleteCheckpoint)):
        opened(tmp_path, archive().to_bytes() + rest)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"PK\x03\x04", b"PK\x03\x04" + b"x" * 100, bytes(5), bytes(70_000)]
)
def test_an_archive_that_is_not_finished_is_waited_for(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(IncompleteCheckpoint, match="still being written, or cut short"):
        opened(tmp_path, content)


@pytest.mark.parametrize(
    "content", [b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", b"GGUF" + b"x" * 100, b"PK\x05\x06"]
)
def test_what_is_no_archive_is_not_waited_for(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="no zip archive"):
        opened(tmp_path, content)
