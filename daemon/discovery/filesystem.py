"""What kind of filesystem a directory is on: events come from local ones only."""

from __future__ import annotations

import os
from pathlib import Path

_REMOTE = (
    "nfs",
    "lustre",
    "gpfs",
    "cifs",
    "smb",
    "fuse",
    "9p",
    "ceph",
    "beegfs",
    "afs",
    "orangefs",
    "wekafs",
)


def filesystem_type(path: Path, mountinfo: str | None = None) -> str:
    """The type of the mount that holds a path (`ext4`, `nfs4`, `lustre`), or `unknown`.

    Args:
        mountinfo: text of /proc/self/mountinfo; read when absent.
    """
    if mountinfo is None:
        try:
            mountinfo = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return "unknown"
    target = os.path.realpath(path)
    best, kind = "", "unknown"
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        mount = fields[4].replace("\\040", " ")
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # the last mount of a point hides the ones before
            best, kind = mount, types[0]
    return kind


def has_remote_writers(path: Path) -> bool:
    """Whether others may write there without this kernel noticing."""
    return filesystem_type(path).startswith(_REMOTE)
