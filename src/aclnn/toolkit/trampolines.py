"""The C code of the libraries: one small function for each declared one, which hands over to Python."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aclnn.capi.prototype import FUNCTIONS, CFunction, CParameter
from aclnn.core.status import ACL_ERROR_RT_INTERNAL_ERROR, ACLNN_ERR_INNER, CODES
from aclnn.toolkit.abi import entry_declaration, parameter_type, result_type
from aclnn.toolkit.rt_aliases import Alias
from aclnn.toolkit.stubs import Stub

#: What Python implements beside the functions: noting a refusal that C code makes.
NOTE_REFUSAL = "void py_note_refusal(const char *function, const char *op_type, int code)"

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
        "#ifndef ACLNN_ENTRIES_H\n#define ACLNN_ENTRIES_H\n\n"
        "#include <stdatomic.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
        f"struct aclnn_entries {{\n{members}"
        "    void (*aclnn_note_refusal)(const char *function, const char *op_type, int code);\n"
        "    /* How many calls have come, of which some may wait for Python's lock. */\n"
        "    atomic_ulong *aclnn_entered;\n};\n\n#endif\n"
    )


def table(functions: Sequence[CFunction]) -> str:
    """C code of the bridge: declares what Python implements and fills the table with it."""
    declarations = "".join(f"{entry_declaration(function)};\n" for function in functions)
    members = "".join(f"    .{function.name} = py_{function.name},\n" for function in functions)
    declarations += f"{NOTE_REFUSAL};\n"
    members += "    .aclnn_note_refusal = py_note_refusal,\n    .aclnn_entered = &entered,\n"
    return f"{declarations}\nstatic const struct aclnn_entries aclnn_table = {{\n{members}}};\n"


def library(functions: Iterable[CFunction | Alias | Stub], headers: Iterable[str]) -> str:
    """The C source of one library."""
    includes = "".join(f'#include "{header}"\n' for header in headers)
    bodies = "\n".join(map(_body, functions))
    ours = "".join(f'#include "{name}"\n' for name in ("entries.h", "start.h", "stubs.h"))
    return f"#define _GNU_SOURCE\n#include <math.h>\n{includes}{ours}\n{bodies}"


def _body(function: CFunction | Alias | Stub) -> str:
    match function:
        case Stub():
            return f"{function.prototype}\n{{\n{_unused(function.parameters)}    return {function.expression};\n}}\n"
        case Alias():
            return _forward(function)
        case _:
            return _trampoline(function)


def _unused(names: Iterable[str]) -> str:
    return "".join(f"    (void){name};\n" for name in names)


def _trampoline(function: CFunction) -> str:
    arguments = ", ".join(_border_argument(parameter.name, parameter) for parameter in function.parameters)
    call = f"entries->{function.name}({arguments})"
    if result_type(function) == "uintptr_t":
        call = f"({function.returns}){call}"
    return _definition(function.prototype, fallback(function), call)


def _forward(forward: Alias) -> str:
    given = [name.strip() for name in forward.arguments.split(",")]
    arguments = ", ".join(map(_border_argument, given, FUNCTIONS[forward.to].parameters))
    unused = _unused(name for name in forward.parameters if name not in given)
    return _definition(forward.prototype, _FALLBACK["rtError_t"], f"entries->{forward.to}({arguments})", unused)


def _border_argument(name: str, parameter: CParameter) -> str:
    return f"({parameter_type(parameter)}){name}"


def _definition(prototype: str, fallback: str, call: str, before: str = "") -> str:
    # The prefix is that of no parameter's name: aclnnSeluBackward has one called result.
    result = re.sub(r"\w+\(.*", "", prototype) + "aclnn_result"
    return (
        f"{prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n"
        f"    {result} = entries == NULL ? {fallback} : {call};\n\n{before}"
        f"    aclnn_give_mode_back(callers);\n    return aclnn_result;\n}}\n"
    )


def exports(names: Iterable[str]) -> str:
    """A linker script that makes these names visible and nothing else."""
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local: *;\n};\n"


def config(values: Mapping[str, str]) -> str:
    """``config.h``: where this machine's Python is."""
    lines = "".join(f"#define {name} {_literal(value)}\n" for name, value in values.items())
    return f"#ifndef ACLNN_CONFIG_H\n#define ACLNN_CONFIG_H\n\n{lines}\n#endif\n"


def _literal(text: str) -> str:
    """A C string of the bytes that the system knows a path by; a question mark might begin a trigraph."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in os.fsencode(text))
    return f'"{"".join(plain)}"'


def source(name: str) -> str:
    """The text of a C file of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
