"""JSON of headers and indices."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.daemon.errors import CorruptCheckpoint
from foreshock.daemon.formats.strict_json import is_cut, parse_object

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(0, 1 << 64)
    | names
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(content=st.dictionaries(names, values, max_size=4), ascii_only=st.booleans())
def test_an_ordinary_object_is_parsed_as_python_does(content: dict[str, object], ascii_only: bool) -> None:
    text = json.dumps(content, ensure_ascii=ascii_only).encode()
    assert parse_object(text, where="index") == content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a": 1, "a": 2}', "'a' stands there twice"),
        (b'{"x": {"a": 1, "a": 1}}', "'a' stands there twice"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": -0}', "-0 is negative"),
        (b'{"a": -5}', "-5 is negative"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "digits"),
        (b'{"\\ud800": 1}', "surrogates not allowed"),
        (b'{"a": "\\udc00"}', "surrogates not allowed"),
        (b'{"a": "\xff"}', "invalid start byte"),
        (b'{"a": "\xed\xa0\x80"}', "invalid continuation byte"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'{"a": 1}{', "Extra data"),
        (b'{"a": "\n"}', "control character"),
        (b"{'a': 1}", "property name"),
        (b'{"a": 01}', "delimiter"),
        (b'{"a": ' + b"[" * 100_000, "recursion"),
        (b"[1]", "not a JSON object"),
        (b"", "Expecting value"),
    ],
)
def test_what_breaks_the_rules_is_corrupt(text: bytes, reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=f"^index: .*{reason}"):
        parse_object(text, where="index")


INDEX = b'{"metadata": {"total_size": 12},\n "weight_map": {"a.weight": "1.safetensors", "\xc3\xa9": "b"}}\n'


def test_every_beginning_of_an_object_counts_as_cut() -> None:
    whole = INDEX.rstrip()
    assert all(is_cut(whole[:length]) for length in range(len(whole)))
    assert all(is_cut(whole[:length] + bytes(9)) for length in range(len(whole)))
    assert not is_cut(INDEX)


@pytest.mark.parametrize("text", [b'{"a": x}', b"{]", b"[}", b'{"a" 1}', b'{"a": 1,}', b"\xff"])
def test_what_no_continuation_mends_is_not_cut(text: bytes) -> None:
    assert not is_cut(text + b"     ")
