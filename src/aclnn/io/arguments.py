"""What a command line says of an operator's arguments: files of tensors, values of attributes, layouts of raw files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from aclnn import io
from aclnn.core.operator import TENSORS, Kind, Operator, Parameter
from aclnn.operators import required_arguments

Array = np.ndarray[Any, Any]
T = TypeVar("T")


def pairs(words: Sequence[str]) -> dict[str, str]:
    """``name=value``, ``--name value`` and ``--name=value`` by name; hyphens in names become underscores.

    Raises:
        ValueError: something else, or a name twice.
    """
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if name.startswith("--") and not sign and rest:
            sign, value = "=", rest.pop(0)
        name = name.removeprefix("--").replace("-", "_")
        if not sign or not name:
            raise ValueError(f"expected name=FILE, name=value or --name value, got {word!r}")
        if name in found:
            raise ValueError(f"{name}: expected once, got it again")
        found[name] = value
    return found


def attribute(parameter: Parameter, text: str, name: str) -> Any:
    """An attribute's value: ``4,8`` for integers, ``1,1,0`` or ``true,true,false`` for truth values.

    Args:
        parameter: which attribute.
        text: the value.
        name: what the caller calls it.

    Raises:
        ValueError: the text is none.
    """
    try:
        match parameter.kind:
            case Kind.STRING:
                return text
            case Kind.INT_ARRAY:
                return tuple(map(int, _items(text)))
            case Kind.BOOL_ARRAY:
                return tuple(_TRUTH[word.lower()] for word in _items(text))
            case Kind.BOOL:
                return _TRUTH[text.strip().lower()]
            case Kind.DOUBLE | Kind.SCALAR:
                return float(text)
            case _:
                return int(text)
    except (ValueError, KeyError):
        wanted = _SPELLING.get(parameter.kind, "an integer")
        raise ValueError(f"{name}: expected {wanted}, got {text!r}") from None


def _items(text: str) -> list[str]:
    return [word for word in text.strip("()[] ").replace(" ", ",").split(",") if word]


_TRUTH = {"1": True, "true": True, "0": False, "false": False}

_SPELLING = {
    Kind.INT_ARRAY: "integers such as 4,8",
    Kind.BOOL_ARRAY: "truth values such as 1,1,0",
    Kind.BOOL: "true or false",
    Kind.DOUBLE: "a number",
    Kind.SCALAR: "a number",
}


def named_file(word: str) -> tuple[str, str]:
    """``name=FILE`` as name and file; the name is "" for any other word, such as ``runs/lr=1/dx.npy``."""
    name, sign, file = word.partition("=")
    return (name, file) if sign and name.isidentifier() else ("", word)


def located(text: str) -> tuple[Path, str | None]:
    """``x.npz:member`` as path and member; no member for any other name."""
    path, _, member = text.rpartition(":")
    return (Path(path), member) if Path(path).suffix.lower() in io.SUFFIXES else (Path(text), None)


@dataclass(frozen=True)
class Raw:
    """What files without a header hold: data type and shape, by argument or, under "", for all."""

    dtypes: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of_words(cls, dtypes: Sequence[str], shapes: Sequence[str]) -> Raw:
        """From ``float16`` or ``name=float16``, and ``4,8`` or ``name=4,8``.

        Raises:
            ValueError: a shape that is none, or two words for the same.
        """
        extents = {name: _extents(text) for name, text in _by_name(shapes, "--shape").items()}
        return cls(_by_name(dtypes, "--dtype"), extents)

    def named(self, operator: Operator) -> Raw:
        """The same under the Python names of an operator's tensors.

        Raises:
            ValueError: an unknown name, or one twice.
        """
        return Raw(_renamed(operator, self.dtypes), _renamed(operator, self.shapes))

    def of(self, name: str) -> tuple[str | None, tuple[int, ...] | None]:
        """Data type and shape of one argument."""
        return self.dtypes.get(name, self.dtypes.get("")), self.shapes.get(name, self.shapes.get(""))

    def read(self, text: str, operator: Operator, name: str, folder: Path = Path()) -> Array:
        """The tensor that a word such as ``x.npz:member`` locates for an operator's argument, in a folder.

        Without a member it is the file's only tensor, or the one that has a name of the argument.

        Raises:
            FileError: as ``io.read``.
        """
        path, member = located(text)
        if member:
            return io.read(folder / path, member, *self.of(name))
        found = io.entries(folder / path, *self.of(name))
        same = [*found] if len(found) == 1 else [key for key in found if _is_name(operator, key, name)]
        if len(same) != 1:
            held = ", ".join(sorted(found)) or "none"
            raise io.FileError(f"{path}: expected {path}:NAME for {name}, with one of the tensors there: {held}")
        return found[same[0]]()


def _is_name(operator: Operator, key: str, name: str) -> bool:
    try:
        return operator.parameter(key, TENSORS).python_name == name
    except ValueError:
        return False


def _by_name(words: Sequence[str], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.rpartition("=")
        if name in found:
            raise ValueError(f"{option}: expected once for each name, got {word!r} again")
        found[name] = value
    return found


def _renamed(operator: Operator, values: Mapping[str, T]) -> dict[str, T]:
    common = {"": values[""]} if "" in values else {}
    return common | operator.by_name(((name, value) for name, value in values.items() if name), TENSORS)


def _extents(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, _items(text)))
    except ValueError:
        raise ValueError(f"--shape: expected extents such as 4,8, got {text!r}") from None


def expect_required(operator: Operator, given: Collection[str]) -> None:
    """Refuse what lacks an input or attribute; names are Python's.

    Raises:
        ValueError: one is not among those given.
    """
    for name in required_arguments(operator):
        if name not in given:
            what = "FILE" if operator.parameter(name).is_tensor else "value"
            raise ValueError(f"{operator.name}: expected {name}={what}, got none")
