"""Hostile values in messages."""

from __future__ import annotations

import time
from typing import Any

import pytest

from foreshock.daemon.formats.inert_values import Global, Stub
from foreshock.daemon.formats.quoting import shown


def billion_laughs() -> Any:
    value: Any = ("ha",)
    for _ in range(40):
        value = (value,) * 10
    return value


def deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("model.weight", "'model.weight'"),
        ("x" * 1000, "'" + "x" * 80 + "'…"),
        (b"raw", "b'raw'"),
        ("\ud800\0", "'\\ud800\\x00'"),
        (7, "7"),
        (-(1 << 64), "an integer of 65 bits"),
        pytest.param(10**5000, "an integer of 16610 bits", id="an integer that pytest cannot show"),
        (1.5, "1.5"),
        (None, "None"),
        (True, "True"),
        ((1, 2), "(1, 2)"),
        ([1, "a"], "[1, 'a']"),
        (list(range(100)), "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
        ({"a": 1}, "a dict"),
        (Global("os", "system"), "a Global"),
        (Stub(None, ()), "a Stub"),
    ],
)
def test_a_value_is_shown_as_python_writes_it_or_as_what_it_is(value: object, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("make", [billion_laughs, deep])
def test_a_value_that_repr_never_finishes_is_shown_at_once(make: Any) -> None:
    value = make()
    start = time.perf_counter()
    assert len(shown(value)) < 2000
    assert time.perf_counter() - start < 0.5
