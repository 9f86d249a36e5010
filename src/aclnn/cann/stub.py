"""The names of ``aclnn.cann`` for type checkers and editors, which cannot see a table that is filled at run time.

``python -m aclnn.docs stub > src/aclnn/cann/__init__.pyi``.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from aclnn.cann.constants import ENUM_TYPES, ENUMS, FLAGS
from aclnn.cann.prototype import CALLS
from aclnn.status import CODES

_WIDTH = 120

_HEAD = '''\
"""Every name of aclnn.cann, made from the declarations by `python -m aclnn.docs stub > src/aclnn/cann/__init__.pyi`."""

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from aclnn.dtypes import DataType, Format

aclDataType = DataType
aclFormat = Format
'''
_ELSEWHERE = ("aclDataType", "aclFormat")


def text() -> str:
    """The text of ``__init__.pyi``, laid out as ``ruff format`` does."""
    enumerations = "".join(_enumeration(name) for name in ENUMS if name not in _ELSEWHERE)
    constants = "\n".join(_constants())
    functions = "".join(_function(name) for name in CALLS)
    return f"{_HEAD}\n{enumerations}{constants}\n\n{functions}".rstrip() + "\n"


def _enumeration(name: str) -> str:
    members = "".join(f"    {member} = {value}\n" for member, value in ENUMS[name].items())
    return f'class {name}(IntEnum):\n    """The enumeration ``{name}``."""\n\n{members}\n'


def _constants() -> Iterator[str]:
    for enum, members in ENUMS.items():
        for name, value in members.items():
            yield f"{name}: Final = {enum}.{ENUM_TYPES[enum](value).name}"
    for name, value in (FLAGS | CODES).items():
        yield f"{name}: Final = {value}"


def _function(name: str) -> str:
    signature = inspect.signature(CALLS[name])
    parameters = [str(parameter).replace("collections.abc.", "") for parameter in signature.parameters.values()]
    returns = inspect.formatannotation(signature.return_annotation)
    head = f"def {name}({', '.join(parameters)}) -> {returns}:"
    if len(head) > _WIDTH:
        inside = f"    {', '.join(parameters)}"
        if len(inside) > _WIDTH:
            inside = ",\n".join(f"    {parameter}" for parameter in parameters) + ","
        head = f"def {name}(\n{inside}\n) -> {returns}:"
    lines = (inspect.getdoc(CALLS[name]) or "").split("\n")
    ending = "\n    " if len(lines) > 1 else ""
    meaning = "\n".join(f"    {line}".rstrip() for line in lines).strip()
    return f'{head}\n    """{meaning}{ending}"""\n\n'
