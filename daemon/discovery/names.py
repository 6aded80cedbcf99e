"""The training step in the name of a checkpoint, whatever the framework's habit.

A name counts only when it matches from its first to its last character: `step-100` does,
`step-100.backup`, `tmp-checkpoint-30` and `checkpoint-best` do not. So staging and backup names need
no list of their own, except for files whose step lies inside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FILE_SUFFIXES = (".safetensors", ".ckpt", ".pth", ".bin", ".pt")

_NUMBER = r"0*(?P<step>\d{1,18})"  # 19 digits would not fit the database
_NAMES = re.compile(
    "|".join(
        pattern.replace("STEP", _NUMBER.replace("step", f"step{i}"))
        for i, pattern in enumerate(
            (
                r"(?:checkpoint|ckpt|step|iter|iteration|global_step|model)[-_]?STEP",
                r"(?:[A-Za-z][A-Za-z0-9]*[-_])?(?:epoch=\d+[-_])?step=STEP",  # Lightning
                r"epoch_\d+_step_STEP",
                r"STEP",
            )
        )
    )
)
_STAGING = re.compile(r"(?i)tmp|temp|staging|incomplete|unfinished|partial|backup|\bold\b|\bbak\b")

STEP_KEYS = ("iter_num", "global_step", "step", "iteration", "global_steps")
"""Where trainers write the step in the file itself."""


def step_in_name(name: str) -> int | None:
    """The step that a directory or file name tells, or None.

    >>> step_in_name("iter_0000500"), step_in_name("epoch=0-step=500.ckpt"), step_in_name("500")
    (500, 500, 500)
    >>> step_in_name("step-100.backup"), step_in_name("step--5"), step_in_name("checkpoint-best")
    (None, None, None)
    """
    for suffix in FILE_SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    match = _NAMES.fullmatch(name)
    if match is None:
        return None
    return next(int(number) for number in match.groups() if number is not None)


def may_hold_its_step(name: str) -> bool:
    """Whether a file without a step in its name may tell it by its content (`ckpt.pt`, `last.ckpt`)."""
    return name.endswith((".ckpt", ".pth", ".pt")) and not name.startswith(".") and not _STAGING.search(name)


def step_in_content(metadata: Mapping[str, Any]) -> int | None:
    """The step among a file's own values, or None."""
    for key in STEP_KEYS:
        value = metadata.get(key)
        if type(value) is int and 0 <= value < 1 << 62:
            return value
    return None
