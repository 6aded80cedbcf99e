"""Pickles as data: honest ones give what pickle gives, and nothing is ever looked up or called."""

from __future__ import annotations

import argparse
import collections
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.daemon.errors import CorruptCheckpoint
from foreshock.daemon.formats import inert_pickle
from foreshock.daemon.formats.inert_pickle import load
from foreshock.daemon.formats.inert_values import Global, Reference, Stub
from tests.writers.raw_pickle import call, integer, integers, mapping, named, program, recall, remember, text

keys = st.text(max_size=4) | st.integers(-(1 << 59), 1 << 59) | st.none() | st.booleans()
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.binary(max_size=8).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=plain, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_are_what_pickle_makes_of_them(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    if b"builtins" in data or b"_codecs" in data or b"__builtin__" in data:
        return  # bytes and bytearrays of old protocols are calls
    loaded = load(data, where="test")
    assert loaded == value
    assert type(loaded) is type(value)


@dataclass
class Record:
    step: int
    name: str


class Slotted:
    __slots__ = ("step",)

    def __init__(self) -> None:
        self.step = 5


@pytest.mark.parametrize("protocol", range(2, 6))
def test_an_object_becomes_a_stub_with_its_attributes(protocol: int) -> None:
    stub = load(pickle.dumps(Record(3, "x"), protocol), where="test")
    assert isinstance(stub, Stub)
    assert stub.path.endswith(".Record")
    assert (stub.attribute("step"), stub.attribute("name"), stub.attribute("other")) == (3, "x", None)


def test_attributes_in_slots_are_found_too() -> None:
    stub = load(pickle.dumps(Slotted(), 4), where="test")
    assert stub.attribute("step") == 5


def test_sets_become_stubs_that_hash_nothing() -> None:
    for value in ({1, 2}, frozenset({1, 2})):
        stub = load(pickle.dumps(value, 4), where="test")
        assert stub.path == f"builtins.{type(value).__name__}"
        assert sorted(stub.items) == [1, 2]


def test_items_of_other_containers_are_kept_beside_their_stub() -> None:
    queue = load(pickle.dumps(collections.deque([1, 2]), 4), where="test")
    assert (queue.path, queue.items) == ("collections.deque", [1, 2])
    default = load(pickle.dumps(collections.defaultdict(list, a=1), 4), where="test")
    assert default.items == [("a", 1)]


def test_a_class_is_only_a_name() -> None:
    assert load(pickle.dumps(argparse.Namespace, 4), where="test") == Global("argparse", "Namespace")
    assert load(pickle.dumps(print, 2), where="test").path == "__builtin__.print"


def test_a_persistent_id_becomes_a_reference() -> None:
    assert load(program(text("key"), pickle.BINPERSID), where="test").id == "key"
    assert load(b"P7\n.", where="test").id == "7"
    assert isinstance(load(b"P7\n.", where="test"), Reference)


def test_a_known_call_is_evaluated_by_the_code_given_for_it() -> None:
    data = program(call("some.module.add", integer(2), integer(3)))
    assert load(data, where="test", reducers={"some.module.add": sum}) == 5


def test_the_name_of_another_module_is_not_known() -> None:
    data = program(call("other.module.add", integer(2)))
    assert isinstance(load(data, where="test", reducers={"some.module.add": sum}), Stub)


def test_a_call_with_keywords_keeps_both_without_a_copy() -> None:
    data = program(named("m.C"), integers(1), mapping((text("k"), integer(2))), pickle.NEWOBJ_EX)
    assert load(data, where="test").args == ((1,), {"k": 2})


def test_an_error_of_a_reducer_is_a_corrupt_file() -> None:
    def refusing(_: tuple[Any, ...]) -> Any:
        raise ValueError("not like this")

    with pytest.raises(CorruptCheckpoint, match="where: not a readable pickle: not like this"):
        load(program(call("m.f")), where="where", reducers={"m.f": refusing})


@pytest.mark.parametrize(
    "opcode",
    [
        pickle.EXT1 + b"\x01",
        pickle.EXT2 + b"\x01\x00",
        pickle.EXT4 + b"\x01\x00\x00\x00",
        pickle.NEXT_BUFFER,
        pickle.NONE + pickle.READONLY_BUFFER,
        b"\xff",
        b"\x00",
    ],
)
def test_an_opcode_that_reaches_beyond_the_stack_is_refused(opcode: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="is not allowed"):
        load(program(opcode), where="test")


@pytest.mark.parametrize(
    "key",
    [
        pickle.EMPTY_LIST,
        pickle.EMPTY_DICT,
        integer(1 << 60),
        integers(*range(64)),
        integers(1, 1 << 70),
        pickle.NONE + pickle.TUPLE1 * 64,
        (pickle.EMPTY_LIST + pickle.TUPLE1),
        pickle.BYTEARRAY8 + struct.pack("<Q", 0),
    ],
    ids=["list", "dict", "integer", "many", "large part", "deep", "list inside", "bytearray"],
)
def test_a_key_that_is_slow_to_hash_is_refused(key: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="dictionary key"):
        load(program(mapping((key, pickle.NONE))), where="test")


@pytest.mark.parametrize(
    "key",
    [(0, "exp_avg"), 7, None, 1.5, b"raw", ("a", ("b", 3)), ()],
)
def test_a_key_that_a_trainer_could_use_is_kept(key: Any) -> None:
    assert load(pickle.dumps({key: 1}, 4), where="test") == {key: 1}


def test_few_tuples_are_keys_as_their_hashes_can_be_made_to_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "MAX_TUPLE_KEYS", 3)
    assert len(load(pickle.dumps({(i,): i for i in range(3)}, 4), where="test")) == 3
    with pytest.raises(CorruptCheckpoint, match="more than 3 tuples"):
        load(pickle.dumps({(i,): i for i in range(4)}, 4), where="test")


def test_opcodes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "MAX_OPCODES", 10)
    with pytest.raises(CorruptCheckpoint, match="more than 10 opcodes"):
        load(program(pickle.NONE * 20), where="test")


def test_objects_are_counted_against_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "FREE_OBJECTS", 3)
    assert load(program(pickle.EMPTY_LIST * 3, pickle.APPEND * 2), where="test") == [[[]]]
    with pytest.raises(CorruptCheckpoint, match="too many objects for its 43 bytes"):
        load(program(pickle.EMPTY_LIST * 40), where="test")


@given(value=plain, protocol=st.sampled_from([2, 4, 5]))
def test_an_honest_pickle_never_has_too_many_objects(value: Any, protocol: int) -> None:
    many = [value, [], {}, [[]], ({},), (), ((),), (1, 2, 3, 4), {1: 2, 3: 4}] * 5
    copies = [pickle.loads(pickle.dumps(each)) for each in many]  # nothing shared
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inert_pickle, "FREE_OBJECTS", 0)
        assert len(load(pickle.dumps(copies, protocol), where="test")) == len(copies)


def test_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inert_pickle, "MAX_PICKLE_BYTES", 10)
    with pytest.raises(CorruptCheckpoint, match="a pickle of 23 bytes, the limit is 10"):
        load(program(pickle.NONE * 20), where="test")


def test_what_follows_the_end_is_ignored() -> None:
    assert load(program(integer(5)) + b"rest", where="test") == 5


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x09.",
        b".",
        b"N",
        b"t.",
        b"0.",
        b"h\x05.",
        b"Inot a number\n.",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN",
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\xffx.",
        b"cos\n",
        b"R.",
        b"NNR.",
        b"cos\nsystem\nNR.",
        b"]Na",
        b"NNNs.",
        b"}(Nu.",
        b"\x93.",
        b"NN\x93.",
        b"(o.",
        b"p-1\n.",
        b"N\x90.",
        b"Fx\n.",
        b"S'open\n.",
        b"\x8b\xff\xff\xff\xff.",
        b"\x8a\x01",
        b"\x8b\x01\x10\x00\x00" + b"x" * 4097 + b".",
        b"I" + b"9" * 5000 + b"\n.",
    ],
)
def test_what_is_no_pickle_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="test: not a readable pickle"):
        load(data, where="test")


@given(data=st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    try:
        load(data, where="test")
    except CorruptCheckpoint:
        return


def test_a_value_may_contain_itself() -> None:
    itself = load(program(pickle.EMPTY_LIST, remember(0), recall(0), pickle.APPEND), where="test")
    assert itself[0] is itself
