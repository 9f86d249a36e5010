"""C types of parameters passed to Python: handles and addresses become integers, arrays and results pointers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aclnn.capi.prototype import CALLBACKS, HANDLES, CFunction, CParameter

_NUMBERS = frozenset(
    {"bool", "int8_t", "uint8_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "size_t", "float", "double"}
)
_SYNONYMS = {"aclFloat16": "uint16_t"}


def number_type(c_type: str) -> str:
    """Return the C type that carries a type without further stars; enumerations and statuses become int."""
    c_type = c_type.removeprefix("const ").removesuffix("const").strip()
    if c_type.endswith("*") or c_type in HANDLES or c_type in CALLBACKS:
        return "uintptr_t"
    return c_type if c_type in _NUMBERS else _SYNONYMS.get(c_type, "int")


def parameter_type(parameter: CParameter) -> str:
    """Return the C type in which a parameter is passed to Python."""
    if parameter.is_output or parameter.counted_by is not None:
        stars = "**" if parameter.is_output and parameter.counted_by is not None else "*"
        pointee = parameter.c_type.removesuffix(stars)
        constant = "" if parameter.is_output else "const "
        return f"{constant}{number_type(pointee)} {stars}"
    return "const char *" if parameter.is_text else number_type(parameter.c_type)


def returns_text(function: CFunction) -> bool:
    """Return True if the function returns a string."""
    return function.returns == "const char*"


def result_type(function: CFunction) -> str:
    """Return the C type of Python's result."""
    return "const char *" if returns_text(function) else number_type(function.returns)


def entry_declaration(function: CFunction) -> str:
    """Return the C declaration of the Python entry point: the prototype in these types, named ``py_…``."""
    arguments = ", ".join(f"{parameter_type(p)} {p.name}".replace("* ", "*") for p in function.parameters)
    return f"{result_type(function)} py_{function.name}({arguments or 'void'})"


@dataclass(frozen=True)
class Prototype:
    """A C function outside the table."""

    prototype: str
    """C prototype, with ``int`` for enumerations and ``void *`` for opaque objects."""

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.prototype.split("(", 1)[0].split()[-1].lstrip("*")

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        listed = self.prototype.split("(", 1)[1].rstrip(")").split(",")
        return [re.findall(r"\w+", part)[-1] for part in listed if part.strip() not in ("void", "...")]
