"""Zip archives byte by byte, as `torch.save` lays them out, with any number changed at will."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

_SATURATED = 0xFFFFFFFF


@dataclass(slots=True)
class RawMember:
    """One stored file; what is None is written truthfully.

    Attributes:
        local_extra: bytes of the extra field in the local header, which readers must skip.
        central_extra: of the directory's entry.
    """

    name: str
    data: bytes = b""
    method: int = 0
    flags: int = 0
    size: int | None = None
    packed: int | None = None
    header: int | None = None
    local_extra: bytes = b""
    central_extra: bytes = b""


@dataclass(slots=True)
class RawArchive:
    """An archive of such members.

    Attributes:
        zip64: whether to write the records that torch always writes.
        end: numbers of the end record to lie about: `count`, `size`, `offset`.
        end64: the same for the zip64 end record.
    """

    members: list[RawMember] = field(default_factory=list)
    zip64: bool = True
    end: dict[str, int] = field(default_factory=dict)
    end64: dict[str, int] = field(default_factory=dict)
    locator: int | None = None
    comment: bytes = b""

    def to_bytes(self) -> bytes:
        """The archive."""
        body = bytearray()
        directory = bytearray()
        for member in self.members:
            header = len(body) if member.header is None else member.header
            size = len(member.data) if member.size is None else member.size
            packed = size if member.packed is None else member.packed
            name = member.name.encode("utf-8", "surrogateescape")
            body += struct.pack(
                "<4s5H3L2H", b"PK\x03\x04", 20, member.flags, member.method, 0, 0, 0,
                len(member.data), len(member.data), len(name), len(member.local_extra),
            )  # fmt: skip
            body += name + member.local_extra + member.data
            directory += struct.pack(
                "<4s6H3L5H2L", b"PK\x01\x02", 20, 20, member.flags, member.method, 0, 0, 0,
                packed, size, len(name), len(member.central_extra), 0, 0, 0, 0, header,
            )  # fmt: skip
            directory += name + member.central_extra
        return bytes(body + directory + self._end_records(len(body), len(directory)))

    def _end_records(self, offset: int, size: int) -> bytes:
        true = {"count": len(self.members), "size": size, "offset": offset}
        wide = true | self.end64
        narrow = {key: min(value, 0xFFFF if key == "count" else _SATURATED) for key, value in true.items()}
        narrow |= self.end
        records = b""
        if self.zip64:
            at = offset + size if self.locator is None else self.locator
            records += struct.pack(
                "<4sQ2H2L4Q", b"PK\x06\x06", 44, 20, 20, 0, 0,
                wide["count"], wide["count"], wide["size"], wide["offset"],
            )  # fmt: skip
            records += struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1)
        return records + struct.pack(
            "<4s4H2LH", b"PK\x05\x06", 0, 0, narrow["count"], narrow["count"], narrow["size"],
            narrow["offset"], len(self.comment),
        ) + self.comment  # fmt: skip


def torch_archive(pickled: bytes, storages: dict[str, bytes] | None = None) -> RawArchive:
    """What `torch.save` would write for a pickle and its storages."""
    members = [RawMember("archive/data.pkl", pickled), RawMember("archive/byteorder", b"little")]
    members += [RawMember(f"archive/data/{key}", data) for key, data in (storages or {}).items()]
    members.append(RawMember("archive/version", b"3\n"))
    return RawArchive(members)
