"""A pickle as data: what it would build becomes plain values and inert stubs; nothing is imported or called.

The stack machine is the standard library's pure-Python one (the C one allocates what a file merely
claims). Every opcode that names, calls or mutates an object is replaced; budgets bound bytes, opcodes and
objects, and no opcode copies or hashes more than a few values, so that time and memory grow with the bytes
of the pickle alone: 50 to 100 bytes for each. What remains of a global is its
name, `Global("torch", "float32")`; of a call, the stub `Stub(callable, args, state)`. Values may share parts
and contain themselves: who walks them must count.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from foreshock.daemon.errors import CorruptCheckpoint
from foreshock.daemon.formats.inert_values import Global, Reference, Stub

MAX_PICKLE_BYTES: Final = 256 << 20
MAX_OPCODES: Final = 100_000_000
BYTES_PER_OBJECT: Final = 2
"""An honest pickler remembers every list, mapping, tuple and call, which takes a second byte at least."""

FREE_OBJECTS: Final = 10_000
MAX_INTEGER_BYTES: Final = 4096
MAX_KEY_PARTS: Final = 64
MAX_KEY_INTEGER: Final = 1 << 60
MAX_TUPLE_KEYS: Final = 10_000

_MALFORMED = (
    pickle.UnpicklingError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What the stack machine raises on bytes that are no pickle."""


Reducer = Callable[[tuple[Any, ...]], Any]
"""Makes a plain value from the arguments of a known call; must not trust them."""


def load(data: bytes | bytearray, *, where: str, reducers: Mapping[str, Reducer] | None = None) -> Any:
    """The value that a pickle describes.

    Args:
        data: the whole pickle; what follows its STOP opcode is ignored.
        where: path for messages.
        reducers: by dotted name, calls to evaluate with code of ours instead of keeping a stub.

    Raises:
        CorruptCheckpoint: no pickle, over a budget, or a use that no honest writer makes.
    """
    if len(data) > MAX_PICKLE_BYTES:
        raise CorruptCheckpoint(f"{where}: a pickle of {len(data)} bytes, the limit is {MAX_PICKLE_BYTES}")
    try:
        return _Machine(data, reducers or {}).load()
    except _MALFORMED as error:
        reason = str(error) or type(error).__name__
        raise CorruptCheckpoint(f"{where}: not a readable pickle: {reason:.200}") from error


def _refuse(message: str) -> NoReturn:
    raise pickle.UnpicklingError(message)


def _check_key(key: Any) -> None:
    """Refuse a dictionary key that is slow to hash, or whose hash a writer could make collide at will.

    Tuples hash their elements anew each time, in the interpreter's C stack; so few and shallow ones.
    """
    parts = [key]
    for part in parts:
        kind = type(part)
        if kind is tuple and len(parts) + len(part) <= MAX_KEY_PARTS:
            parts.extend(part)
        elif kind not in _CHEAP_KEYS and not (kind is int and abs(part) < MAX_KEY_INTEGER):
            _refuse(f"a dictionary key that is, or holds, too large a value or a {kind.__name__}")


_CHEAP_KEYS = frozenset({str, bytes, float, bool, type(None), Global, Stub, Reference})
"""Hashed by identity, or once and with a secret."""


class _Machine(pickle._Unpickler):  # noqa: SLF001 - the documented class is the C one
    """The standard stack machine without any opcode that reaches beyond the stack."""

    pop_mark: Callable[[], list[Any]]  # of the base class, unknown to type checkers

    def __init__(self, data: bytes | bytearray, reducers: Mapping[str, Reducer]) -> None:
        file = io.BytesIO(data)
        super().__init__(file, encoding="utf-8", errors="surrogateescape")
        self.read, self.readline = file.read, file.readline  # past the frames, which say nothing here
        self._size = len(data)
        self._reducers = reducers
        self._globals: dict[tuple[str, str], Global] = {}
        self._reducers_by_identity: dict[int, Reducer] = {}
        self._num_tuple_keys = 0
        self.objects_left = FREE_OBJECTS + self._size // BYTES_PER_OBJECT
        self._memo: list[Any] = []  # the base class's dictionary takes ten times the memory

    def load(self) -> Any:
        """Run until STOP, counting opcodes."""
        self.metastack: list[list[Any]] = []
        self.stack: list[Any] = []
        self.append = self.stack.append
        self.proto = 0
        read, actions = self.read, _ACTIONS
        try:
            for _ in range(MAX_OPCODES):
                actions[read(1)](self)
        except pickle._Stop as stop:  # type: ignore[attr-defined]  # noqa: SLF001
            return stop.value
        _refuse(f"more than {MAX_OPCODES} opcodes")

    def count_object(self) -> None:
        """Refuse more objects than an honest pickler makes of so many bytes."""
        self.objects_left -= 1
        if self.objects_left < 0:
            _refuse(f"too many objects for its {self._size} bytes")

    # Names and calls -----------------------------------------------------------------------------

    def push_global(self) -> None:
        module = self.readline()[:-1].decode("utf-8")
        name = self.readline()[:-1].decode("utf-8")
        self._push_named(module, name)

    def push_stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if type(name) is not str or type(module) is not str:
            _refuse("STACK_GLOBAL needs two strings")
        self._push_named(module, name)

    def _push_named(self, module: str, name: str) -> None:
        """The same name is the same object, so that its reducer is looked up once."""
        known = self._globals.get((module, name))
        if known is None:
            known = self._globals[module, name] = Global(module, name)
            if reducer := self._reducers.get(known.path):
                self._reducers_by_identity[id(known)] = reducer
        self.append(known)

    def call(self) -> None:
        args, function = self.stack.pop(), self.stack.pop()
        self.append(self._called(function, args))

    def call_new(self) -> None:
        args, cls = self.stack.pop(), self.stack.pop()
        self.append(self._called(cls, args))

    def call_new_with_keywords(self) -> None:
        keywords, args, cls = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.append(self._called(cls, (args, keywords)))

    def call_inst(self) -> None:
        self.push_global()
        cls = self.stack.pop()
        args = tuple(self.pop_mark())
        self.append(self._called(cls, args))

    def call_obj(self) -> None:
        cls, *args = self.pop_mark()
        self.append(self._called(cls, tuple(args)))

    def _called(self, function: Any, args: Any) -> Any:
        if not isinstance(args, tuple):
            _refuse("a call without an argument tuple")
        reducer = self._reducers_by_identity.get(id(function))
        return reducer(args) if reducer else Stub(function, args)

    def push_persistent(self) -> None:
        self.append(Reference(self.stack.pop()))

    def push_persistent_text(self) -> None:
        self.append(Reference(self.readline()[:-1].decode("ascii")))

    # Mutation ------------------------------------------------------------------------------------

    def build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, Stub):
            target.state = state
        # State of anything else (the `_metadata` of a state dict's OrderedDict) says nothing to us.

    def append_one(self) -> None:
        value = self.stack.pop()
        _items_of(self.stack[-1]).append(value)

    def append_many(self) -> None:
        values = self.pop_mark()
        _items_of(self.stack[-1]).extend(values)

    def push_set(self) -> None:
        self.append(Stub(_SET, ()))

    def push_frozenset(self) -> None:
        values = self.pop_mark()  # before `append` is looked up: popping a mark replaces it
        self.append(Stub(_FROZENSET, (), items=values))

    def set_one(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set(self.stack[-1], [key, value])

    def set_many(self) -> None:
        items = self.pop_mark()
        self._set(self.stack[-1], items)

    def push_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set(self.stack[-1], items)

    def _set(self, target: Any, items: list[Any]) -> None:
        if len(items) % 2:
            _refuse("a key without a value")
        if isinstance(target, dict):
            for key, value in zip(items[::2], items[1::2], strict=True):
                if type(key) is not str:
                    self._check_key(key)
                target[key] = value
        elif isinstance(target, Stub):
            _items_of(target).extend(zip(items[::2], items[1::2], strict=True))
        else:
            _refuse("items set on something that is no mapping")

    def _check_key(self, key: Any) -> None:
        _check_key(key)
        self._num_tuple_keys += type(key) is tuple
        if self._num_tuple_keys > MAX_TUPLE_KEYS:
            _refuse(f"more than {MAX_TUPLE_KEYS} tuples as dictionary keys")

    # Values that are met again ---------------------------------------------------------------------

    def memoize(self) -> None:
        self._memo.append(self.stack[-1])

    def put_text(self) -> None:
        self._put(int(self.readline()[:-1]))

    def put_short(self) -> None:
        self._put(self.read(1)[0])

    def put_long(self) -> None:
        self._put(*struct.unpack("<I", self.read(4)))

    def _put(self, index: int) -> None:
        """Picklers number what they remember one after the other; optimised pickles leave gaps."""
        memo = self._memo
        if not 0 <= index <= self._size:
            _refuse(f"value number {index} to remember in {self._size} bytes")
        if index >= len(memo):
            memo.extend([_ABSENT] * (index + 1 - len(memo)))
        memo[index] = self.stack[-1]

    def get_text(self) -> None:
        self._get(int(self.readline()[:-1]))

    def get_short(self) -> None:
        self._get(self.read(1)[0])

    def get_long(self) -> None:
        self._get(*struct.unpack("<I", self.read(4)))

    def _get(self, index: int) -> None:
        value = self._memo[index] if 0 <= index < len(self._memo) else _ABSENT
        if value is _ABSENT:
            _refuse(f"value number {index} was never remembered")
        self.append(value)

    # Sizes that are claimed, and need not be true ----------------------------------------------------

    def skip_frame_size(self) -> None:
        self.read(8)

    def push_long_integer(self) -> None:
        (size,) = struct.unpack("<i", self.read(4))
        if not 0 <= size <= MAX_INTEGER_BYTES:
            _refuse(f"an integer of {size} bytes")
        self.append(int.from_bytes(self.read(size), "little", signed=True))

    def push_bytearray(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        if size > self._size:
            _refuse(f"a bytearray of {size} bytes in a pickle of {self._size}")
        self.append(bytearray(self.read(size)))


def _items_of(target: Any) -> list[Any]:
    if isinstance(target, list):
        return target
    if isinstance(target, Stub):
        if isinstance(target.items, tuple):
            target.items = []
        return target.items
    _refuse("items appended to something that is no list")


_SET = Global("builtins", "set")
_FROZENSET = Global("builtins", "frozenset")

_HARMLESS = (
    "PROTO", "STOP", "MARK", "POP", "POP_MARK", "DUP", "NONE", "NEWTRUE", "NEWFALSE",
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "FLOAT", "BINFLOAT",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "LIST", "EMPTY_DICT",
)  # fmt: skip
"""Opcodes of the standard machine that only push and pop plain values."""


_OBJECTS = (
    "MARK", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET",
    "BINPERSID", "REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ",
)  # fmt: skip
"""Opcodes of one byte that make a container or a stub; those of more bytes limit themselves."""


def _code(name: str) -> int:
    code: bytes = getattr(pickle, name)
    return code[0]


_OURS: Mapping[str, Callable[[_Machine], None]] = {
    "GLOBAL": _Machine.push_global,
    "STACK_GLOBAL": _Machine.push_stack_global,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call_new,
    "NEWOBJ_EX": _Machine.call_new_with_keywords,
    "INST": _Machine.call_inst,
    "OBJ": _Machine.call_obj,
    "PERSID": _Machine.push_persistent_text,
    "BINPERSID": _Machine.push_persistent,
    "BUILD": _Machine.build,
    "APPEND": _Machine.append_one,
    "APPENDS": _Machine.append_many,
    "EMPTY_SET": _Machine.push_set,
    "ADDITEMS": _Machine.append_many,
    "FROZENSET": _Machine.push_frozenset,
    "SETITEM": _Machine.set_one,
    "SETITEMS": _Machine.set_many,
    "DICT": _Machine.push_dict,
    "MEMOIZE": _Machine.memoize,
    "PUT": _Machine.put_text,
    "BINPUT": _Machine.put_short,
    "LONG_BINPUT": _Machine.put_long,
    "GET": _Machine.get_text,
    "BINGET": _Machine.get_short,
    "LONG_BINGET": _Machine.get_long,
    "FRAME": _Machine.skip_frame_size,
    "LONG4": _Machine.push_long_integer,
    "BYTEARRAY8": _Machine.push_bytearray,
}

_DISPATCH: Mapping[int, Callable[[Any], None]] = {
    **{_code(name): pickle._Unpickler.dispatch[_code(name)] for name in _HARMLESS},  # noqa: SLF001
    **{_code(name): action for name, action in _OURS.items()},
}
"""By opcode; what is not here (extension registry, out-of-band buffers) is refused."""

_ABSENT: Final = object()


def _counted(action: Callable[[Any], None]) -> Callable[[_Machine], None]:
    """The same action, which makes an object."""

    def act(machine: _Machine) -> None:
        machine.count_object()
        action(machine)

    return act


def _not_allowed(code: int) -> Callable[[_Machine], None]:
    def refuse(machine: _Machine) -> NoReturn:
        del machine
        _refuse(f"opcode {bytes((code,))!r} is not allowed")

    return refuse


def _ended(machine: _Machine) -> NoReturn:
    del machine
    _refuse("it ends before its STOP opcode")


_ACTIONS: Mapping[bytes, Callable[[_Machine], None]] = {
    **{bytes((code,)): _not_allowed(code) for code in range(256)},
    **{bytes((code,)): action for code, action in _DISPATCH.items()},
    **{bytes((code,)): _counted(_DISPATCH[code]) for code in map(_code, _OBJECTS)},
    b"": _ended,
}
"""By what is read next."""
