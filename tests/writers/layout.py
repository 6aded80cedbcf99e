"""What the tests know of one way of writing weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Layout:
    """One way of writing.

    Attributes:
        prefix: what the layout puts before the name of a weight.
        several_files: whether a part of the files can be there without the others.
        main_file: by relative path; removed, the checkpoint is incomplete or none at all; cut, it must
            not be read.
    """

    name: str
    write: Callable[[Path, Weights], None]
    main_file: str
    format: str
    prefix: str = ""
    several_files: bool = False

    def __str__(self) -> str:
        return self.name
