"""C code of the libraries: one small function per declared function, which calls Python."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from aclnn.capi.objects import SCALARS
from aclnn.capi.prototype import FUNCTIONS, STATUS_TYPES, CFunction, CParameter
from aclnn.core.dtypes import DataType
from aclnn.core.operator import PHASE_ONE
from aclnn.core.status import ACL_ERROR_RT_INTERNAL_ERROR
from aclnn.operators.registry import C_OPERATORS
from aclnn.toolkit.abi import entry_declaration, parameter_type, result_type
from aclnn.toolkit.rt_aliases import Alias
from aclnn.toolkit.stubs import Stub

#: Files of this package that the libraries have in common.
SHARED = ("start.c", "start.h", "objects.c", "objects.h", "stubs.h")

#: Python entry point that records an error made by C code.
NOTE_ERROR = "void py_note_error(const char *function, int code)"
#: Python entry point that caches phase one's answer to an executor and numbers it; ``gone`` is an evicted number or 0.
KEEP = "int64_t py_keep(uintptr_t executor, int64_t gone, int16_t *operands, size_t *count)"
#: Python entry point that runs an executor removed by C: its answer's number and two words per operand.
RUN = (
    "int py_run(int64_t answer, const uintptr_t *words, size_t operands, uintptr_t workspace, uint64_t workspace_size, "
    "uintptr_t stream)"
)
SERVED = (NOTE_ERROR, KEEP, RUN)
_SERVED_NAME, _MEMBER = r"py_(\w+)", r"(*aclnn_\1)"

# Functions that C implements itself in ordinary cases (objects.h).
_IN_C = re.compile(r"acl(?P<verb>Create|Destroy)(?P<noun>Tensor|Scalar|IntArray|BoolArray|TensorList|ScalarList)")
_OBJECTS = ("aclTensor*", "aclTensorList*", "aclScalar*", "aclScalarList*", "aclIntArray*", "aclBoolArray*")
_NUMBERS = {operator.function: operator.numbers for operator in C_OPERATORS}

#: Result of a call that Python cannot serve, by the C type of the status.
_FALLBACK = {name: str(statuses.internal) for name, statuses in STATUS_TYPES.items()} | {
    "rtError_t": str(ACL_ERROR_RT_INTERNAL_ERROR)
}


def fallback(function: CFunction) -> str:
    """Return the C expression for a call that Python cannot serve: a status, or the function's null."""
    if function.returns_status:
        return _status(function, function.returns)
    match function.null:
        case None:
            return "NULL"
        case str() as text:
            return _literal(text)
        case number:
            return "NAN" if math.isnan(number) else str(number)


def _status(function: CFunction, returns: str) -> str:
    """Return the C expression of an error, or of success where the end of Python has left nothing to be done."""
    return f"(aclnn_ended() ? 0 : {_FALLBACK[returns]})" if function.is_teardown else _FALLBACK[returns]


def entries_header(functions: Iterable[CFunction]) -> str:
    """Return ``entries.h``: the table of entry points that the bridge fills and the libraries call."""
    members = "".join(
        f"    {entry_declaration(function).replace(f'py_{function.name}(', f'(*{function.name})(', 1)};\n"
        for function in functions
    )
    served = "".join(f"    {re.sub(_SERVED_NAME, _MEMBER, each)};\n" for each in SERVED)
    return (
        "#ifndef ACLNN_ENTRIES_H\n#define ACLNN_ENTRIES_H\n\n"
        "#include <stdatomic.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
        f"struct aclnn_entries {{\n{members}{served}"
        "    /* Number of calls made by C, some of which may be waiting for Python's lock. */\n"
        "    atomic_ulong *aclnn_entered;\n};\n\n#endif\n"
    )


def table(functions: Sequence[CFunction]) -> str:
    """Return the bridge's C code that declares the Python entry points and fills the table with them."""
    declarations = "".join(f"{entry_declaration(function)};\n" for function in functions)
    members = "".join(f"    .{function.name} = py_{function.name},\n" for function in functions)
    declarations += "".join(f"{served};\n" for served in SERVED)
    names = re.findall(_SERVED_NAME, " ".join(SERVED))
    members += "".join(f"    .aclnn_{name} = py_{name},\n" for name in names) + "    .aclnn_entered = &entered,\n"
    return f"{declarations}\nstatic const struct aclnn_entries aclnn_table = {{\n{members}}};\n"


def library(functions: Iterable[CFunction | Alias | Stub], headers: Iterable[str]) -> str:
    """Return the C source of one library."""
    includes = "".join(f'#include "{header}"\n' for header in headers)
    bodies = "\n".join(map(_body, functions))
    ours = "".join(f'#include "{name}"\n' for name in ("entries.h", "objects.h", "start.h", "stubs.h"))
    return f"#define _GNU_SOURCE\n#include <math.h>\n{includes}{ours}\n{bodies}"


def _body(function: CFunction | Alias | Stub) -> str:
    match function:
        case Stub():
            is_void = _return_type(function.prototype) == "void"
            last = f"(void){function.expression}" if is_void else f"return {function.expression}"
            return f"{function.prototype}\n{{\n{_unused(function.parameters)}    {last};\n}}\n"
        case Alias():
            return _forward(function)
        case _:
            return _trampoline(function)


def _unused(names: Iterable[str]) -> str:
    return "".join(f"    (void){name};\n" for name in names)


def _trampoline(function: CFunction) -> str:
    if function.name.endswith(PHASE_ONE):
        return _phase_one(function)
    if f"{function.name}{PHASE_ONE}" in FUNCTIONS:
        return _phase_two(function)
    served = _IN_C.fullmatch(function.name)
    return _definition(function.prototype, fallback(function), _call(function), _served(function, served))


def _call(function: CFunction) -> str:
    """Return the C expression that calls Python."""
    arguments = ", ".join(_border_argument(parameter.name, parameter) for parameter in function.parameters)
    call = f"aclnn_asked(entries)->{function.name}({arguments})"
    return f"({function.returns}){call}" if result_type(function) == "uintptr_t" else call


def _served(function: CFunction, matched: re.Match[str] | None) -> str:
    """Return a C expression that tries to serve a call without Python, with a placeholder for the call of Python.

    For most functions it is the placeholder alone.
    """
    if matched is None:
        return "{}"
    name = (
        "aclnn_" + matched["verb"].lower() + re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", matched["noun"])
    )
    arguments = ", ".join(
        f"(const void *const *){parameter.name}" if parameter.c_type.count("*") > 1 else parameter.name
        for parameter in function.parameters
    )
    if matched["verb"] == "Destroy":
        return f"{name}({arguments}) ? 0 : {{}}"
    # A GNU extension, which clang has too: a ?: b is a ? a : b.
    return f"({function.returns}){name}({arguments}) ?: {{}}"


def _phase_one(function: CFunction) -> str:
    """Return phase one in C: the cached answer for these arguments, else Python's, which is then cached."""
    numbers = _NUMBERS.get(function.name.removesuffix(PHASE_ONE), ())
    described = "".join(f"        {_key(parameter, numbers)};\n" for parameter in function.inputs)
    size, executor = (parameter.name for parameter in function.outputs)
    return (
        f"{function.prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n    struct aclnn_key aclnn_key;\n"
        f"    aclnnStatus aclnn_result = {fallback(function)};\n\n    if (entries != NULL) {{\n"
        f'        aclnn_key_begin(&aclnn_key, "{function.name.removesuffix(PHASE_ONE)}");\n{described}'
        f"        aclnn_result = 0;\n        if (!aclnn_key_find(&aclnn_key, {size}, {executor})) {{\n"
        f"            aclnn_result = {_call(function)};\n            if (aclnn_result == 0) {{\n"
        f"                aclnn_key_keep(&aclnn_key, entries, *{size}, *{executor});\n            }}\n        }}\n"
        f"    }}\n    aclnn_give_mode_back(callers);\n    return aclnn_result;\n}}\n"
    )


def _phase_two(function: CFunction) -> str:
    """Return phase two in C: Python runs an executor removed from C's table, or one of its own."""
    workspace, size, executor, stream = (parameter.name for parameter in function.parameters)
    return (
        f"{function.prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n    struct aclnn_call aclnn_call;\n"
        f"    aclnnStatus aclnn_result = {fallback(function)};\n\n    if (entries != NULL) {{\n"
        f'        if (aclnn_take_call({executor}, "{function.name}", &aclnn_call)) {{\n'
        f"            aclnn_result = aclnn_asked(entries)->aclnn_run(aclnn_call.answer, aclnn_call.word,\n"
        f"                aclnn_call.operands, (uintptr_t){workspace}, {size}, (uintptr_t){stream});\n"
        f"        }} else {{\n            aclnn_result = {_call(function)};\n        }}\n    }}\n"
        f"    aclnn_give_mode_back(callers);\n    return aclnn_result;\n}}\n"
    )


def _key(parameter: CParameter, numbers: Collection[str]) -> str:
    if parameter.c_type.removeprefix("const ") in _OBJECTS:
        what = "number" if parameter.name in numbers else "object"
        return f"aclnn_key_{what}(&aclnn_key, {parameter.name})"
    if parameter.is_text:
        return f"aclnn_key_text(&aclnn_key, {parameter.name})"
    return f"aclnn_key_value(&aclnn_key, &{parameter.name}, sizeof {parameter.name})"


def _forward(forward: Alias) -> str:
    given = [name.strip() for name in forward.arguments.split(",")]
    arguments = ", ".join(map(_border_argument, given, FUNCTIONS[forward.to].parameters))
    unused = _unused(name for name in forward.parameters if name not in given)
    call = f"aclnn_asked(entries)->{forward.to}({arguments})"
    return _definition(forward.prototype, _status(FUNCTIONS[forward.to], "rtError_t"), call, before=unused)


def _border_argument(name: str, parameter: CParameter) -> str:
    return f"({parameter_type(parameter)}){name}"


def _return_type(prototype: str) -> str:
    return re.sub(r"\w+\(.*", "", prototype).strip()


def _definition(prototype: str, fallback: str, call: str, served: str = "{}", before: str = "") -> str:
    # Prefixed to differ from parameters' names: aclnnSeluBackward has one called result.
    returns = _return_type(prototype)
    is_void = returns == "void"
    result = f"{'int' if is_void else returns} aclnn_result"
    last = "(void)aclnn_result" if is_void else "return aclnn_result"
    return (
        f"{prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n"
        f"    {result} = entries == NULL ? {fallback} : {served.format(call)};\n\n{before}"
        f"    aclnn_give_mode_back(callers);\n    {last};\n}}\n"
    )


def exports(names: Iterable[str]) -> str:
    """Return a linker script that exports only these names."""
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local: *;\n};\n"


def config(values: Mapping[str, str]) -> str:
    """Return ``config.h``: where this machine's Python is, element sizes, and the data types of scalars."""
    lines = "".join(f"#define {name} {_literal(value)}\n" for name, value in values.items())
    # Tensors of smaller elements are created by Python.
    whole = [dtype for dtype in DataType if dtype >= 0 and dtype.bits == 8 * dtype.itemsize]
    sizes = ", ".join(f"[{dtype.value}] = {dtype.itemsize}" for dtype in whole)
    lines += f"#define ACLNN_ITEMSIZES {{{sizes}}}\n"
    lines += f"#define ACLNN_SCALAR_TYPES UINT64_C({sum(1 << dtype for dtype in SCALARS):#x})\n"
    return f"#ifndef ACLNN_CONFIG_H\n#define ACLNN_CONFIG_H\n\n{lines}\n#endif\n"


def _literal(text: str) -> str:
    """Return a C string literal of a path's bytes; a question mark is escaped since it might begin a trigraph."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in os.fsencode(text))
    return f'"{"".join(plain)}"'


def source(name: str) -> str:
    """Return the text of a C file of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
