"""Operators' arguments from files and text: tensors, attributes, layouts of raw files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from aclnn import io
from aclnn.core.operator import TENSORS, Kind, Operator, Parameter
from aclnn.operators import required_arguments
from aclnn.typing import Array

T = TypeVar("T")


def attribute(parameter: Parameter, text: str, name: str) -> Any:
    """Parse an attribute: ``4,8`` for integers, ``1,1,0`` or ``true,true,false`` for booleans.

    Args:
        parameter: the attribute.
        text: the value.
        name: the caller's name for the attribute.

    Raises:
        ValueError: the value is not of the attribute's kind.
    """
    parse, wanted = _PARSERS.get(parameter.kind, (int, "an integer"))
    try:
        return parse(text)
    except (ValueError, KeyError):
        raise ValueError(f"{name}: expected {wanted}, got {text!r}") from None


def integers(text: str) -> tuple[int, ...]:
    """Parse integers such as ``4,8``.

    Raises:
        ValueError: the text is not a list of integers.
    """
    return tuple(map(int, _items(text)))


def _items(text: str) -> list[str]:
    return [word for word in text.strip("()[] ").replace(" ", ",").split(",") if word]


def _truth(text: str) -> bool:
    return {"1": True, "true": True, "0": False, "false": False}[text.strip().lower()]


_PARSERS: Mapping[Kind, tuple[Callable[[str], Any], str]] = {
    Kind.STRING: (str, "a text"),
    Kind.INT_ARRAY: (integers, "integers such as 4,8"),
    Kind.BOOL_ARRAY: (lambda text: tuple(map(_truth, _items(text))), "truth values such as 1,1,0"),
    Kind.BOOL: (_truth, "true or false"),
    **dict.fromkeys((Kind.DOUBLE, Kind.FLOAT), (float, "a number")),
    Kind.DTYPE: (str, "a data type"),
    Kind.SCALAR: (float, "a number"),
}


def split_member(text: str) -> tuple[Path, str | None]:
    """Split ``x.npz:member`` into path and member; the member of any other text is None."""
    path, _, member = text.rpartition(":")
    return (Path(path), member) if Path(path).suffix.lower() in io.SUFFIXES else (Path(text), None)


@dataclass(frozen=True)
class Raw:
    """Data types and shapes of raw files by argument; the key "" applies to all other arguments."""

    dtypes: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def named(self, operator: Operator) -> Raw:
        """Rename to the Python names of an operator's tensors.

        Raises:
            ValueError: a name is unknown, or given twice.
        """
        return Raw(_renamed(operator, self.dtypes), _renamed(operator, self.shapes))

    def over(self, other: Raw) -> Raw:
        """Merge two objects; entries of this one take precedence."""
        return Raw({**other.dtypes, **self.dtypes}, {**other.shapes, **self.shapes})

    def of(self, name: str) -> tuple[str | None, tuple[int, ...] | None]:
        """Return the data type and shape of one argument."""
        return self.dtypes.get(name, self.dtypes.get("")), self.shapes.get(name, self.shapes.get(""))

    def read(self, text: str, operator: Operator, name: str, folder: Path = Path()) -> Array:
        """Read an operator's argument from a file in a folder, named by text such as ``x.npz:member``.

        Without a member, read the file's only tensor, or the tensor named like the argument.

        Raises:
            FileError: as ``io.read``.
        """
        path, member = split_member(text)
        if member:
            return io.read(folder / path, member, *self.of(name))
        found = io.entries(folder / path, *self.of(name))
        wanted = operator.parameter(name)
        same = [*found] if len(found) == 1 else [key for key in found if operator.find(key, TENSORS) is wanted]
        if len(same) != 1:
            held = ", ".join(sorted(found)) or "none"
            raise io.FileError(f"{path}: expected {path}:NAME for {name}, with one of the tensors there: {held}")
        return found[same[0]]()


def _renamed(operator: Operator, values: Mapping[str, T]) -> dict[str, T]:
    common = {"": values[""]} if "" in values else {}
    return common | operator.by_name(((name, value) for name, value in values.items() if name), TENSORS)


def expect_required(operator: Operator, given: Collection[str]) -> None:
    """Require every input and attribute without a default, by its Python name.

    Raises:
        ValueError: one is missing.
    """
    for name in required_arguments(operator):
        if name not in given:
            what = "FILE" if operator.parameter(name).is_tensor else "value"
            raise ValueError(f"{operator.name}: expected {name}={what}, got none")
