"""The environment of processes that tests start: the same packages, the tests themselves, one thread."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def child_environment(**more: str) -> dict[str, str]:
    """Ours, so that a child imports what we import, also from a copy of the repository."""
    path = os.pathsep.join([str(Path.cwd()), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}
