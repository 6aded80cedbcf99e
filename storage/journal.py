"""Which journal a SQLite database is kept with: write-ahead where that is safe, else rollback.

Libraries from 3.7.0 to 3.51.2 can lose commits when two connections race to reset the write-ahead log;
that was mended in 3.51.3 and in late 3.44 and 3.50 releases (https://sqlite.org/changes.html).
On filesystems shared between hosts the log's shared memory is not shared, and no library makes it safe.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MENDED = (3, 51, 3)
BACKPORTS = {(3, 44): 6, (3, 50): 7}
"""Release lines that were mended later, from which patch on."""

SHARED_FILESYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2"}
    | {"pvfs2", "smb3", "smbfs", "virtiofs"}
)
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Journal:
    """How commits are made durable.

    Attributes:
        synchronous: `EXTRA` with a rollback journal: it also syncs the directory that the journal is
            deleted from, without which a power cut can undo an acknowledged commit.
    """

    mode: Literal["wal", "delete"]
    synchronous: Literal["FULL", "EXTRA"]


WRITE_AHEAD = Journal("wal", "FULL")
ROLLBACK = Journal("delete", "EXTRA")


def journal_for(version: tuple[int, int, int], filesystem: str) -> Journal:
    """The journal for a library version and a filesystem type, as `/proc` spells it."""
    shared = filesystem in SHARED_FILESYSTEMS or filesystem.startswith("fuse")
    return WRITE_AHEAD if _is_mended(version) and not shared else ROLLBACK


def filesystem_of(path: Path) -> str:
    """The type of the filesystem that holds an existing path; empty where `/proc` does not tell."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.split("\n"):
        match = re.match(r"\d+ \d+ (\S+) .* - (\S+) ", line)
        if match and match[1] == wanted:
            return match[2]
    return ""


def _is_mended(version: tuple[int, int, int]) -> bool:
    major, minor, patch = version
    mended_from = BACKPORTS.get((major, minor))
    return version >= MENDED or (mended_from is not None and patch >= mended_from)
