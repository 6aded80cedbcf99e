"""The directory of a zip archive as `torch.save` writes it: stored members at fixed offsets.

An archive may be a whole file or lie inside one (every chunk of a DCP shard is an archive of its own).
Only what a tensor writer produces is accepted: nothing compressed or encrypted, no member beyond the
archive, no two members on the same bytes. `torch.load(mmap=True)` skips some of these checks.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from foreshock.daemon.errors import CorruptCheckpoint, IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.files import Files

MAX_MEMBERS = 2_000_000
MAX_DIRECTORY_BYTES = 256 << 20

_END = struct.Struct("<4s4H2LH")  # end of central directory
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")  # central directory entry
_LOCAL = struct.Struct("<4s5H3L2H")  # local header
_MAX_COMMENT = 0xFFFF
_TAIL_BYTES = _END.size + _END64_LOCATOR.size + _END64.size


@dataclass(frozen=True, slots=True)
class Member:
    """One stored file of the archive.

    Attributes:
        header: byte of the archive at which its local header starts.
        size: of the data, in bytes.
    """

    header: int
    size: int


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
        if magic != b"PK\x03\x04" or offset + member.size > self.length:
            raise CorruptCheckpoint(
                f"{files.root / self.file}: member {name!r:.80} has no sound local header"
            )
        return self.start + offset

    def read(self, files: Files, name: str, *, limit: int) -> bytearray:
        """A member's data, if it has at most `limit` bytes."""
        size = self.members[name].size
        if size > limit:
            raise CorruptCheckpoint(
                f"{files.root / self.file}: member {name!r:.80} has {size} bytes, the limit is {limit}"
            )
        return files.read(self.file, self.data_offset(files, name), size)


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
        UnsupportedCheckpoint: compressed or encrypted members.
    """
    if length is None:
        length = files.state(file).size - start
    where = str(files.root / file)
    extent = _find_directory(files, file, start, length)
    if extent.offset + extent.size > length or extent.size > MAX_DIRECTORY_BYTES:
        raise CorruptCheckpoint(f"{where}: the zip directory lies outside of its {length} bytes")
    if extent.count > MAX_MEMBERS or extent.count * _ENTRY.size > extent.size:
        raise CorruptCheckpoint(f"{where}: {extent.count} zip members in {extent.size} directory bytes")
    directory = files.read(file, start + extent.offset, extent.size)
    members = _parse_directory(directory, extent.count, where)
    _check_disjoint(members, extent.offset, where)
    return Archive(file, start, length, _without_top_folder(members, where))


def _find_directory(files: Files, file: str, start: int, length: int) -> _Extent:
    for tail_bytes in (_TAIL_BYTES, _TAIL_BYTES + _MAX_COMMENT):
        size = min(length, tail_bytes)
        tail = files.read(file, start + length - size, size)
        at = tail.rfind(b"PK\x05\x06")
        if at >= 0 and at + _END.size <= len(tail):
            break
    else:
        raise IncompleteCheckpoint(
            f"{files.root / file}: no zip directory at its end ({length} bytes):"
            " still being written, cut short, or in PyTorch's format from before 1.6"
        )
    *_, count, size, offset, _comment = _END.unpack_from(tail, at)
    if offset != 0xFFFFFFFF and size != 0xFFFFFFFF and count != 0xFFFF:
        return _Extent(offset, size, count)
    return _find_directory64(tail, at, length, length - len(tail), str(files.root / file))


def _find_directory64(tail: bytearray, at: int, length: int, tail_start: int, where: str) -> _Extent:
    if at >= _END64_LOCATOR.size:
        magic, _, end64, _ = _END64_LOCATOR.unpack_from(tail, at - _END64_LOCATOR.size)
        position = end64 - tail_start
        if magic == b"PK\x06\x07" and 0 <= position <= len(tail) - _END64.size and end64 < length:
            magic64, *_, count, size, offset = _END64.unpack_from(tail, position)
            if magic64 == b"PK\x06\x06":
                return _Extent(offset, size, count)
    raise CorruptCheckpoint(f"{where}: its zip64 end record is missing or unsound")


def _parse_directory(directory: bytearray, count: int, where: str) -> dict[str, Member]:
    members: dict[str, Member] = {}
    position = 0
    for _ in range(count):
        if position + _ENTRY.size > len(directory):
            raise CorruptCheckpoint(
                f"{where}: the zip directory ends after {len(members)} of {count} members"
            )
        fields = _ENTRY.unpack_from(directory, position)
        magic, _, _, flags, method = fields[:5]
        packed, size, name_length, extra_length, comment_length = fields[8:13]
        header = fields[16]
        name_at = position + _ENTRY.size
        name = bytes(directory[name_at : name_at + name_length]).decode("utf-8", "surrogateescape")
        extra = bytes(directory[name_at + name_length : name_at + name_length + extra_length])
        if magic != b"PK\x01\x02" or name in members:
            raise CorruptCheckpoint(f"{where}: unsound or repeated zip member {name!r:.80}")
        if method != 0 or flags & 1:
            raise UnsupportedCheckpoint(
                f"{where}: zip member {name!r:.80} is compressed or encrypted; torch.save stores it plainly"
            )
        size, packed, header = _widened(extra, size, packed, header, f"{where}: {name!r:.80}")
        if size != packed:
            raise CorruptCheckpoint(f"{where}: zip member {name!r:.80} claims {size} and {packed} bytes")
        members[name] = Member(header, size)
        position = name_at + name_length + extra_length + comment_length
    return members


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


def _check_disjoint(members: Mapping[str, Member], directory_offset: int, where: str) -> None:
    end = 0
    for name, member in sorted(members.items(), key=lambda item: item[1].header):
        if member.header < end or member.header + _LOCAL.size + member.size > directory_offset:
            raise CorruptCheckpoint(f"{where}: zip member {name!r:.80} lies on another's bytes or outside")
        end = member.header + _LOCAL.size + member.size


def _without_top_folder(members: Mapping[str, Member], where: str) -> dict[str, Member]:
    tops = {name.split("/", 1)[0] for name in members}
    if len(tops) != 1 or not all("/" in name for name in members):
        raise UnsupportedCheckpoint(f"{where}: a zip archive, but not one that torch.save wrote")
    return {name.split("/", 1)[1]: member for name, member in members.items()}
