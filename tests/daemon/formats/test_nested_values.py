"""What is found in a nested saved object, however it is knotted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats import nested_values
from foreshock.daemon.formats.inert_values import Stub
from foreshock.daemon.formats.nested_values import plain_values, walk_tensors
from foreshock.daemon.formats.torch_zip import Refused, TensorRef


def tensor() -> TensorRef:
    return TensorRef("0", 1, "float32", 0, (1,), (1,))


def paths(content: Any) -> list[str]:
    return [path for path, _ in walk_tensors(content, where="test")]


def laughs(leaf: Any, kind: Any, levels: int) -> Any:
    """Ten references to ten references to …: 10^levels paths, `levels` objects."""
    for _ in range(levels):
        leaf = dict.fromkeys(range(10), leaf) if kind is dict else kind([leaf] * 10)
    return leaf


def test_tensors_are_named_by_their_path() -> None:
    content = {"model": {"a.w": tensor(), "list": [tensor(), {"b": tensor()}]}, 3: (tensor(),), "n": 5}
    assert sorted(paths(content)) == ["3.0", "model.a.w", "model.list.0", "model.list.1.b"]


def test_what_cannot_be_read_is_named_like_the_rest() -> None:
    assert list(walk_tensors({"x": Refused("why")}, where="test")) == [("x", Refused("why"))]


@pytest.mark.parametrize("content", [5, "text", None, Stub(None, ()), b"raw", 1.5])
def test_what_is_no_container_holds_no_tensor(content: Any) -> None:
    assert paths(content) == []
    assert plain_values(content) == {}


@pytest.mark.parametrize("kind", [dict, list, tuple])
def test_shared_containers_are_walked_once(kind: Any) -> None:
    start = time.perf_counter()
    assert len(paths(laughs(tensor(), kind, 11))) == 10
    assert plain_values({"x": laughs({"step": 1}, kind, 40)}) == {}
    assert time.perf_counter() - start < 0.5


def test_shared_mappings_give_their_values_once() -> None:
    start = time.perf_counter()
    found = plain_values(laughs({"step": 1}, dict, 3))
    assert found == {"0": {"0": {"0": {"step": 1}}}}
    assert time.perf_counter() - start < 0.5


def test_a_container_in_itself_ends() -> None:
    knot: dict[str, Any] = {"w": tensor(), "step": 3}
    knot["self"] = knot
    assert paths(knot) == ["w"]
    assert plain_values(knot) == {"step": 3}


def test_a_stub_whose_state_holds_it_ends() -> None:
    stub = Stub(None, ())
    stub.state = {"step": 3, "again": stub}
    assert plain_values({"args": stub}) == {"args": {"step": 3}}


def test_the_path_nearest_to_the_root_is_the_name() -> None:
    weights = {"w": tensor()}
    assert paths({"a": {"deep": weights}, "model": weights}) == ["model.w"]


def test_nesting_beyond_the_limit_is_not_walked() -> None:
    content: Any = tensor()
    for _ in range(12):
        content = [content]
    assert len(paths(content)) == 1
    assert paths([content]) == []


def test_keys_that_are_no_strings_are_written_out() -> None:
    assert paths({(0, "exp_avg"): tensor(), None: tensor(), True: tensor()}) == [
        "(0, 'exp_avg')",
        "None",
        "True",
    ]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 4097])
def test_a_path_that_no_database_holds_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptCheckpoint, match="cannot be the name of a tensor"):
        paths({name: tensor()})


def test_tensors_and_the_length_of_their_names_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {f"w{i}": tensor() for i in range(10)}
    monkeypatch.setattr(nested_values, "MAX_TENSORS", 9)
    with pytest.raises(UnsupportedCheckpoint, match="more than 9 tensors"):
        paths(content)
    monkeypatch.setattr(nested_values, "MAX_TENSORS", 10)
    assert len(paths(content)) == 10
    monkeypatch.setattr(nested_values, "MAX_PATH_CHARACTERS", 19)
    with pytest.raises(UnsupportedCheckpoint, match="names of more than 19 characters"):
        paths(content)


def test_plain_values_survive_json_and_unicode() -> None:
    content = {
        "small": (1 << 63) - 1,
        "large": 1 << 63,
        "huge": 10**5000,
        "bad": "\ud800",
        "long": "x" * 70_000,
        "nan": float("nan"),
        10**18: "integer key",
        (1, 2): "tuple key",
        "\udc00": "bad key",
    }
    found = plain_values(content)
    assert found.keys() == {"small", "nan", str(10**18)}
    json.dumps(found).encode()


def test_a_model_with_many_tensors_hides_no_arguments() -> None:
    content = {"model": {f"w{i}": tensor() for i in range(20_000)}, "args": {"n": {"layers": 2}}, "step": 3}
    assert plain_values(content) == {"args": {"n": {"layers": 2}}, "step": 3}


def test_plain_values_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nested_values, "MAX_PLAIN_VALUES", 4)
    assert plain_values({str(i): i for i in range(10)}) == {"0": 0, "1": 1, "2": 2, "3": 3}
