"""The C code of the libraries: one small function for each declared one, which hands over to Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aclnn.cann.prototype import FUNCTIONS, CFunction, CParameter
from aclnn.status import ACL_ERROR_RT_INTERNAL_ERROR, ACLNN_ERR_INNER, CODES
from aclnn.toolkit.border import entry_declaration, parameter_type, result_type
from aclnn.toolkit.lower_runtime import Forward

#: What a call answers when Python cannot serve it, by the C type of its result.
_FALLBACK = {
    "aclError": str(CODES["ACL_ERROR_INTERNAL_ERROR"]),
    "aclnnStatus": str(ACLNN_ERR_INNER),
    "rtError_t": str(ACL_ERROR_RT_INTERNAL_ERROR),
    "float": "NAN",
}


def fallback(function: CFunction) -> str:
    """The C expression that a call returns when Python cannot serve it: an error status, null, or 0."""
    return "NULL" if function.returns.endswith("*") else _FALLBACK.get(function.returns, "0")


def entries_header(functions: Iterable[CFunction]) -> str:
    """``entries.h``: the table of entry points that the bridge fills and the libraries call through."""
    members = "".join(
        f"    {entry_declaration(function).replace(f'py_{function.name}(', f'(*{function.name})(', 1)};\n"
        for function in functions
    )
    return (
        "#ifndef ACLNN_ENTRIES_H\n#define ACLNN_ENTRIES_H\n\n#include <stdbool.h>\n#include <stddef.h>\n"
        f"#include <stdint.h>\n\nstruct aclnn_entries {{\n{members}}};\n\n#endif\n"
    )


def table(functions: Sequence[CFunction]) -> str:
    """C code of the bridge: declares what Python implements and fills the table with it."""
    declarations = "".join(f"{entry_declaration(function)};\n" for function in functions)
    members = "".join(f"    .{function.name} = py_{function.name},\n" for function in functions)
    return f"{declarations}\nstatic const struct aclnn_entries aclnn_table = {{\n{members}}};\n"


def library(functions: Iterable[CFunction | Forward], headers: Iterable[str]) -> str:
    """The C source of one library."""
    includes = "".join(f'#include "{header}"\n' for header in headers)
    bodies = "\n".join(_forward(item) if isinstance(item, Forward) else _trampoline(item) for item in functions)
    return f'#include <math.h>\n{includes}#include "entries.h"\n#include "start.h"\n\n{bodies}'


def _trampoline(function: CFunction) -> str:
    arguments = ", ".join(_border_argument(parameter.name, parameter) for parameter in function.parameters)
    call = f"entries->{function.name}({arguments})"
    if result_type(function) == "uintptr_t":
        call = f"({function.returns}){call}"
    return _definition(function.prototype, fallback(function), call)


def _forward(forward: Forward) -> str:
    given = [name.strip() for name in forward.arguments.split(",")]
    arguments = ", ".join(map(_border_argument, given, FUNCTIONS[forward.to].parameters))
    unused = "".join(f"    (void){name};\n" for name in forward.parameters if name not in given)
    return _definition(forward.prototype, _FALLBACK["rtError_t"], f"entries->{forward.to}({arguments})", unused)


def _border_argument(name: str, parameter: CParameter) -> str:
    return f"({parameter_type(parameter)}){name}"


def _definition(prototype: str, fallback: str, call: str, before: str = "") -> str:
    result = re.sub(r"\w+\(.*", "", prototype)
    return (
        f"{prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n"
        f"    {result}result = entries == NULL ? {fallback} : {call};\n\n{before}"
        f"    aclnn_give_mode_back(callers);\n    return result;\n}}\n"
    )


def exports(names: Iterable[str]) -> str:
    """A linker script that makes these names visible and nothing else."""
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local: *;\n};\n"


def config(values: Mapping[str, str]) -> str:
    """``config.h``: where this machine's Python is."""
    lines = "".join(f"#define {name} {json.dumps(value)}\n" for name, value in values.items())
    return f"#ifndef ACLNN_CONFIG_H\n#define ACLNN_CONFIG_H\n\n{lines}\n#endif\n"


def source(name: str) -> str:
    """The text of a C file of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
