"""The directory of a zip archive as `torch.save` writes it: stored members at fixed offsets.

An archive may be a whole file or lie inside one (every chunk of a DCP shard is an archive of its own).
Only what a tensor writer produces is accepted: nothing compressed or encrypted, no member beyond the
archive, no two members on the same bytes. `torch.load(mmap=True)` skips some of these checks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
)
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.quoting import shown

MAX_MEMBERS = 250_000
"""Storages in one archive; the largest models split into single experts have some 150,000."""

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")  # central directory entry
_LOCAL = struct.Struct("<4s5H3L2H")  # local header
_LOCAL_MAGIC = b"PK\x03\x04"
_MAX_COMMENT = 0xFFFF
_MAX_ENTRY_BYTES = 1024  # name and extra fields included; torch's names have some 30 bytes
_TAIL_BYTES = _END.size + _END64_LOCATOR.size + _END64.size


@dataclass(frozen=True, slots=True)
class Member:
    """One stored file of the archive.

    Attributes:
        header: byte of the archive at which its local header starts.
        size: of the data, in bytes.
        end: byte at which the next member, or the directory, starts.
    """

    header: int
    size: int
    end: int


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive at `start` … `start + length` of a file.

    Attributes:
        members: by name, without the archive's own top folder.
    """

    file: str
    start: int
    length: int
    members: Mapping[str, Member]

    def data_offset(self, files: Files, name: str) -> int:
        """Byte of the file at which a member's data starts.

        The local header is read, as its extra field differs from the one in the directory.
        """
        member = self.members[name]
        header = files.read(self.file, self.start + member.header, _LOCAL.size)
        magic, *_, name_length, extra_length = _LOCAL.unpack(header)
        offset = int(member.header + _LOCAL.size + name_length + extra_length)
        if magic != _LOCAL_MAGIC or offset + member.size > member.end:
            raise CorruptCheckpoint(
                f"{files.root / self.file}: member {shown(name)} has no sound local header"
            )
        return self.start + offset

    def read(self, files: Files, name: str, *, limit: int) -> bytearray:
        """A member's data, if it has at most `limit` bytes."""
        size = self.members[name].size
        if size > limit:
            raise CorruptCheckpoint(
                f"{files.root / self.file}: member {shown(name)} has {size} bytes, the limit is {limit}"
            )
        return files.read(self.file, self.data_offset(files, name), size)


class _Entry(NamedTuple):
    """What the directory says of one member."""

    name: str
    header: int
    size: int


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where the central directory lies, relative to the archive."""

    offset: int
    size: int
    count: int


def read_archive(files: Files, file: str, *, start: int = 0, length: int | None = None) -> Archive:
    """The archive's members, from its central directory, which is written last.

    Raises:
        IncompleteCheckpoint: there is no end record (yet): the file is still being written, or was cut.
        CorruptCheckpoint: records contradict each other or the size of the archive.
        UnsupportedCheckpoint: no zip archive at all, compressed or encrypted members, too many of them.
    """
    if length is None:
        length = files.state(file).size - start
    where = str(files.root / file)
    extent = _find_directory(files, file, start, length)
    if extent.count > MAX_MEMBERS:
        raise UnsupportedCheckpoint(f"{where}: {extent.count} zip members, the limit is {MAX_MEMBERS}")
    if not extent.count * _ENTRY.size <= extent.size <= extent.count * _MAX_ENTRY_BYTES:
        raise CorruptCheckpoint(f"{where}: {extent.count} zip members in {extent.size} directory bytes")
    directory = files.read(file, start + extent.offset, extent.size)
    members = _bounded(_parse_directory(directory, extent.count, where), extent.offset, where)
    return Archive(file, start, length, _without_top_folder(members, where))


def _find_directory(files: Files, file: str, start: int, length: int) -> _Extent:
    """The extent that the end records give; it must reach up to the first of them."""
    where = str(files.root / file)
    at = -1
    for tail_bytes in (_TAIL_BYTES, _TAIL_BYTES + _MAX_COMMENT):
        size = min(length, tail_bytes)
        tail = files.read(file, start + length - size, size)
        at = tail.rfind(b"PK\x05\x06", 0, size - _END.size + 4) if size >= _END.size else -1
        if at >= 0:
            break
    if at < 0:
        raise _without_end_record(files, file, start, length)
    *_, comment_length = _END.unpack_from(tail, at)
    rest = len(tail) - at - _END.size
    if rest != comment_length:
        raise CorruptCheckpoint(f"{where}: {rest} bytes follow its zip directory")
    extent, records_at = _read_end_records(tail, at, length - len(tail), where)
    if extent.offset + extent.size != records_at:
        raise CorruptCheckpoint(
            f"{where}: its zip directory of {extent.size} bytes at {extent.offset}"
            f" does not end at the end records, {records_at}"
        )
    return extent


def _without_end_record(files: Files, file: str, start: int, length: int) -> CheckpointError:
    where = str(files.root / file)
    first = files.read(file, start, min(length, len(_LOCAL_MAGIC)))
    if _LOCAL_MAGIC.startswith(first) or not any(first):  # zeros: allocated, not yet written
        return IncompleteCheckpoint(
            f"{where}: no zip directory at its end ({length} bytes): still being written, or cut short"
        )
    return UnsupportedCheckpoint(
        f"{where}: no zip archive; it may be in PyTorch's format from before 1.6, or no checkpoint"
    )


def _read_end_records(tail: bytearray, at: int, tail_start: int, where: str) -> tuple[_Extent, int]:
    """The extent, and where the records begin. torch writes the zip64 record also where none is needed."""
    _, *_, count, size, offset, _ = _END.unpack_from(tail, at)
    narrow = _Extent(offset, size, count)
    locator_at = at - _END64_LOCATOR.size
    if locator_at < 0 or tail[locator_at : locator_at + 4] != b"PK\x06\x07":
        return narrow, tail_start + at
    _, _, records_at, _ = _END64_LOCATOR.unpack_from(tail, locator_at)
    inside = records_at - tail_start
    if not (0 <= inside <= locator_at - _END64.size and tail[inside : inside + 4] == b"PK\x06\x06"):
        raise CorruptCheckpoint(f"{where}: its zip64 end record is missing or unsound")
    *_, count, size, offset = _END64.unpack_from(tail, inside)
    wide = _Extent(offset, size, count)
    if narrow != _Extent(min(offset, 0xFFFFFFFF), min(size, 0xFFFFFFFF), min(count, 0xFFFF)):
        raise CorruptCheckpoint(f"{where}: its zip end records contradict each other: {narrow}, {wide}")
    return wide, records_at


def _parse_directory(directory: bytearray, count: int, where: str) -> list[_Entry]:
    entries: list[_Entry] = []
    position = 0
    for _ in range(count):
        if position + _ENTRY.size > len(directory):
            break
        fields = _ENTRY.unpack_from(directory, position)
        magic, _, _, flags, method = fields[:5]
        packed, size, name_length, extra_length, comment_length = fields[8:13]
        name_at = position + _ENTRY.size
        name = bytes(directory[name_at : name_at + name_length]).decode("utf-8", "surrogateescape")
        extra = bytes(directory[name_at + name_length : name_at + name_length + extra_length])
        if magic != b"PK\x01\x02":
            raise CorruptCheckpoint(f"{where}: no zip directory entry at {position} of {len(directory)}")
        if method != 0 or flags & 1:
            raise UnsupportedCheckpoint(
                f"{where}: zip member {shown(name)} is compressed or encrypted; torch.save stores it plainly"
            )
        size, packed, header = _widened(extra, size, packed, fields[16], f"{where}: {shown(name)}")
        if size != packed:
            raise CorruptCheckpoint(f"{where}: zip member {shown(name)} claims {size} and {packed} bytes")
        entries.append(_Entry(name, header, size))
        position = name_at + name_length + extra_length + comment_length
    if len(entries) != count or position != len(directory):
        raise CorruptCheckpoint(
            f"{where}: {len(entries)} zip members end at byte {position} of the directory;"
            f" {count} members in {len(directory)} bytes were announced"
        )
    return entries


def _widened(extra: bytes, size: int, packed: int, header: int, where: str) -> tuple[int, int, int]:
    """The three numbers, replaced from the zip64 extra field where they are saturated."""
    values = [size, packed, header]
    missing = [i for i, value in enumerate(values) if value == 0xFFFFFFFF]
    if not missing:
        return size, packed, header
    position = 0
    while position + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, position)
        if tag == 1 and length >= 8 * len(missing) and position + 4 + length <= len(extra):
            wide = struct.unpack_from(f"<{len(missing)}Q", extra, position + 4)
            for i, value in zip(missing, wide, strict=True):
                values[i] = value
            return values[0], values[1], values[2]
        position += 4 + length
    raise CorruptCheckpoint(f"{where}: zip64 sizes are missing")


def _bounded(entries: list[_Entry], directory_offset: int, where: str) -> dict[str, Member]:
    """The members with their ends; each lies between its local header and the next one's."""
    members: dict[str, Member] = {}
    end = directory_offset
    for name, header, size in sorted(entries, key=lambda entry: entry.header, reverse=True):
        if header + _LOCAL.size + size > end:
            raise CorruptCheckpoint(f"{where}: zip member {shown(name)} lies on another's bytes or outside")
        if name in members:
            raise CorruptCheckpoint(f"{where}: two zip members are named {shown(name)}")
        members[name] = Member(header, size, end)
        end = header
    return members


def _without_top_folder(members: Mapping[str, Member], where: str) -> dict[str, Member]:
    tops = {name.split("/", 1)[0] for name in members}
    if len(tops) != 1 or not all("/" in name for name in members):
        raise UnsupportedCheckpoint(f"{where}: a zip archive, but not one that torch.save wrote")
    return {name.split("/", 1)[1]: member for name, member in members.items()}
