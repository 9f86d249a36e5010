"""The pickle inside a torch.save archive, as data: a tiny machine that knows tensors and nothing else.

Unpickling runs whatever the file names. This reads the opcodes, allows those that torch.save emits for tensors,
dictionaries, lists and plain values, and calls nothing: a global is a word from a fixed list or the file is refused.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aclnn.core.dtypes import DataType
from aclnn.io.entry import MAX_DIMS, is_shape

MAX_PICKLE_BYTES = 1 << 26
_MAX_OBJECTS = 100_000
_MAX_OPERATIONS = 40 * _MAX_OBJECTS
"""A tensor takes about thirty."""
_MAX_DEPTH = 32
_MAX_NAME = 512
"""Characters in a name, of whatever; those of all tensors stay within what may come of any file."""


class RefusedPickleError(ValueError):
    """An opcode, global or structure that plain tensors do not need."""


@dataclass(frozen=True)
class Saved:
    """A tensor as torch.save describes it: a strided view of a storage."""

    storage: str
    dtype: DataType
    storage_elements: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Foreign:
    """What a pickle would make by calling something that is not called here, or of a type that is not known here."""

    text: str


_STORAGES = {
    "FloatStorage": DataType.FLOAT, "HalfStorage": DataType.FLOAT16, "BFloat16Storage": DataType.BF16,
    "DoubleStorage": DataType.DOUBLE, "LongStorage": DataType.INT64, "IntStorage": DataType.INT32,
    "ShortStorage": DataType.INT16, "CharStorage": DataType.INT8, "ByteStorage": DataType.UINT8,
    "BoolStorage": DataType.BOOL,
}  # fmt: skip


@dataclass(frozen=True)
class _Storage:
    name: str
    dtype: DataType
    elements: int


def describe(data: bytes) -> dict[str, Saved | Foreign]:
    """The tensors of a torch.save pickle by name; nested containers give names joined by dots, a lone tensor "".

    What else is among them is said to be foreign; plain values are left out.

    Raises:
        RefusedPickleError: anything that a file of tensors would not contain.
    """
    try:
        root = _execute(data)
    except (ValueError, IndexError, TypeError, KeyError, struct.error, RecursionError) as error:
        raise RefusedPickleError(f"expected tensors as torch.save writes them ({error})") from error
    found = dict(_tensors(root))
    if not any(isinstance(item, Saved) for item in found.values()):
        foreign = next(iter(found.values()), None)
        raise RefusedPickleError(foreign.text if isinstance(foreign, Foreign) else "expected a tensor, got none")
    return found


def _tensors(root: Any) -> Iterator[tuple[str, Saved | Foreign]]:
    pending: list[tuple[str, Any, int]] = [("", root, 0)]
    seen = 1
    while pending:
        name, value, depth = pending.pop()
        if isinstance(value, (Saved, Foreign)):
            yield name, value
        elif isinstance(value, (dict, list, tuple)):
            seen += len(value)
            if seen > _MAX_OBJECTS or depth >= _MAX_DEPTH:
                raise RefusedPickleError(f"expected at most {_MAX_OBJECTS} objects, {_MAX_DEPTH} deep")
            items = value.items() if isinstance(value, dict) else enumerate(value)
            prefix = f"{name}." if name else ""
            pending.extend((_short(f"{prefix}{key}"), item, depth + 1) for key, item in reversed(list(items)))


class _Mark:
    pass


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def pop_two(self) -> tuple[Any, Any]:
        return self.stack.pop(-2), self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for at in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[at], _Mark):
                items = self.stack[at + 1 :]
                del self.stack[at:]
                return items
        raise RefusedPickleError("expected a mark on the stack")

    def push_tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise RefusedPickleError("expected more on the stack")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(items)

    def set_items(self, items: Sequence[Any]) -> None:
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise RefusedPickleError("expected a dictionary on the stack")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not isinstance(key, (str, int)):
                raise RefusedPickleError("expected text or numbers as names")
            self.stack[-1][_short(key) if isinstance(key, str) else key] = value

    def extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise RefusedPickleError("expected a list on the stack")
        self.stack[-1].extend(items)

    def build(self, state: Any) -> None:
        """Attributes are not tensors here, be they of an OrderedDict (a state_dict's _metadata) or of a module."""
        built = self.stack[-1]
        if isinstance(built, Foreign) and isinstance(state, dict) and "_parameters" in state:
            self.stack[-1] = Foreign(f"{built.text}: save model.state_dict() instead of the model")

    def memoize(self, at: int) -> None:
        self.memo[at] = self.stack[-1]


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, arg: None,
    "FRAME": lambda machine, arg: None,
    "MARK": lambda machine, arg: machine.push(_Mark()),
    "EMPTY_DICT": lambda machine, arg: machine.push({}),
    "EMPTY_LIST": lambda machine, arg: machine.push([]),
    "EMPTY_TUPLE": lambda machine, arg: machine.push(()),
    "NONE": lambda machine, arg: machine.push(None),
    "NEWTRUE": lambda machine, arg: machine.push(True),
    "NEWFALSE": lambda machine, arg: machine.push(False),
    "GLOBAL": lambda machine, arg: machine.push(_known(arg)),
    "STACK_GLOBAL": lambda machine, arg: machine.push(_known(" ".join(map(_short, machine.pop_two())))),
    "MEMOIZE": lambda machine, arg: machine.memoize(len(machine.memo)),
    "TUPLE": lambda machine, arg: machine.push(tuple(machine.pop_to_mark())),
    "TUPLE1": lambda machine, arg: machine.push_tuple_of(1),
    "TUPLE2": lambda machine, arg: machine.push_tuple_of(2),
    "TUPLE3": lambda machine, arg: machine.push_tuple_of(3),
    "BINPERSID": lambda machine, arg: machine.push(_storage(machine.pop())),
    "REDUCE": lambda machine, arg: machine.push(_reduced(*machine.pop_two())),
    "NEWOBJ": lambda machine, arg: machine.push(_reduced(*machine.pop_two())),
    "BUILD": lambda machine, arg: machine.build(machine.pop()),
    "SETITEM": lambda machine, arg: machine.set_items(machine.pop_two()),
    "SETITEMS": lambda machine, arg: machine.set_items(machine.pop_to_mark()),
    "APPEND": lambda machine, arg: machine.extend([machine.pop()]),
    "APPENDS": lambda machine, arg: machine.extend(machine.pop_to_mark()),
    **dict.fromkeys(
        ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _Machine.push
    ),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.memoize),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, arg: machine.push(machine.memo[arg])),
}
"""What each operation does, for the few that tensors need."""


def _execute(data: bytes) -> Any:
    machine = _Machine()
    for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name == "STOP":
            break
        if number == _MAX_OPERATIONS:
            raise RefusedPickleError(f"expected at most {_MAX_OPERATIONS} operations")
        if opcode.name not in _ACTIONS:
            raise RefusedPickleError(f"expected tensors only, got the pickle opcode {opcode.name}")
        _ACTIONS[opcode.name](machine, argument)
    if len(machine.stack) != 1:
        raise RefusedPickleError("expected one object")
    return machine.stack[0]


def _short(name: Any) -> str:
    """A name that many others may be made of; so may errors."""
    if not isinstance(name, str) or len(name) > _MAX_NAME:
        got = f"one of {len(name)}" if isinstance(name, str) else f"a {type(name).__name__}"
        raise RefusedPickleError(f"expected a name of at most {_MAX_NAME} characters, got {got}")
    return name


def _known(name: str) -> str | Foreign:
    module, _, word = _short(name).partition(" ")
    if name in _CALLS or (module == "torch" and word in _STORAGES):
        return name
    return Foreign(f"expected tensors only, got {name.replace(' ', '.')!r}, which is not called")


def _storage(identifier: Any) -> _Storage | Foreign:
    kind, word, name, _, elements = identifier
    if isinstance(word, Foreign):  # a type of elements that is not known here
        return word
    dtype = _STORAGES.get(word.partition(" ")[2]) if isinstance(word, str) else None
    if kind != "storage" or dtype is None or not _is_count(elements):
        raise RefusedPickleError("expected a storage: its word, type, name, device and number of elements")
    return _Storage(_short(name), dtype, elements)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _rebuilt(arguments: tuple[Any, ...]) -> Saved | Foreign:
    storage, offset, shape, strides = arguments[:4]
    if isinstance(storage, Foreign):
        return storage
    if not (
        isinstance(storage, _Storage)
        and isinstance(shape, tuple)
        and isinstance(strides, tuple)
        and len(shape) == len(strides) <= MAX_DIMS
        and all(map(_is_count, (offset, *shape, *strides)))
    ):
        raise RefusedPickleError("expected storage, offset, shape and strides")
    return Saved(storage.name, storage.dtype, storage.elements, offset, shape, strides)


def _size(arguments: tuple[Any, ...]) -> tuple[int, ...]:
    if not is_shape(arguments[0]):
        raise RefusedPickleError(f"expected at most {MAX_DIMS} extents in a torch.Size")
    return tuple(arguments[0])


_CALLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "torch._utils _rebuild_tensor_v2": _rebuilt,
    "torch._utils _rebuild_parameter": lambda arguments: arguments[0],
    "collections OrderedDict": lambda arguments: {},
    "torch Size": _size,
}


def _reduced(function: Any, arguments: Any) -> Any:
    if isinstance(function, Foreign):
        return function
    if not isinstance(function, str) or function not in _CALLS or not isinstance(arguments, tuple):
        called = repr(_short(function)) if isinstance(function, str) else f"a {type(function).__name__}"
        raise RefusedPickleError(f"expected tensors only, got a call of {called}")
    return _CALLS[function](arguments)


def pickled(tensors: Mapping[str, tuple[DataType, tuple[int, ...]]]) -> bytes:
    """The pickle of contiguous tensors (data type, shape), storage k being the k-th; the name "" alone for a lone one.

    Raises:
        RefusedPickleError: a data type that torch has no storage for.
    """
    pieces = [b"\x80\x02"]
    if list(tensors) == [""]:
        pieces.append(_pickled_tensor(0, *tensors[""]))
    else:
        pieces.append(b"}(")
        for number, (name, (dtype, shape)) in enumerate(tensors.items()):
            pieces += [_text(name), _pickled_tensor(number, dtype, shape)]
        pieces.append(b"u")
    return b"".join(pieces) + b"."


def _pickled_tensor(number: int, dtype: DataType, shape: tuple[int, ...]) -> bytes:
    words = {kind: word for word, kind in _STORAGES.items()}
    if dtype not in words:
        known = ", ".join(kind.numpy_name or kind.c_name for kind in words)
        raise RefusedPickleError(f"expected one of {known}, got {dtype.numpy_name or dtype.c_name}")
    strides: list[int] = []
    elements = 1
    for extent in reversed(shape):
        strides.insert(0, elements)
        elements *= extent
    storage = b"(" + _text("storage") + b"ctorch\n" + words[dtype].encode() + b"\n"
    storage += _text(str(number)) + _text("cpu") + _integer(elements) + b"tQ"
    layout = _integer(0) + _integers(shape) + _integers(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + layout + b"\x89ccollections\nOrderedDict\n)RtR"


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def _integer(value: int) -> bytes:
    encoded = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(encoded)]) + encoded


def _integers(values: Any) -> bytes:
    return b"(" + b"".join(map(_integer, values)) + b"t"
