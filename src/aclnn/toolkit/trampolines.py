"""The C code of the libraries: one small function for each declared one, which hands over to Python."""

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

#: Files of this package that the libraries share.
SHARED = ("start.c", "start.h", "objects.c", "objects.h", "stubs.h")

#: What Python implements beside the functions: noting a refusal that C code makes.
NOTE_REFUSAL = "void py_note_refusal(const char *function, int code)"
#: Numbers phase one's answer, known by an executor; ``gone`` is a number no longer in use, or 0. 0 keeps none.
KEEP = "int64_t py_keep(uintptr_t executor, int64_t gone, int16_t *operands, size_t *count)"
#: Running an executor that has been ended in C: its answer's number and two words of each operand (``aclnn_call``).
RUN = (
    "int py_run(int64_t answer, const uintptr_t *words, size_t operands, uintptr_t workspace, uint64_t workspace_size, "
    "uintptr_t stream)"
)
SERVED = (NOTE_REFUSAL, KEEP, RUN)
_SERVED_NAME, _MEMBER = r"py_(\w+)", r"(*aclnn_\1)"

# What C does itself where nothing is out of the ordinary (objects.h).
_IN_C = re.compile(r"acl(?P<verb>Create|Destroy)(?P<noun>Tensor|Scalar|IntArray|BoolArray|TensorList|ScalarList)")
_OBJECTS = ("aclTensor*", "aclTensorList*", "aclScalar*", "aclScalarList*", "aclIntArray*", "aclBoolArray*")
_NUMBERS = {operator.function: operator.numbers for operator in C_OPERATORS}

#: What a call answers when Python cannot serve it, by the C type of its status.
_FALLBACK = {name: str(statuses.internal) for name, statuses in STATUS_TYPES.items()} | {
    "rtError_t": str(ACL_ERROR_RT_INTERNAL_ERROR),
}


def fallback(function: CFunction) -> str:
    """The C expression that a call returns when Python cannot serve it: an error status, or the function's null."""
    if function.returns_status:
        return _FALLBACK[function.returns]
    match function.null:
        case None:
            return "NULL"
        case str() as text:
            return _literal(text)
        case number:
            return "NAN" if math.isnan(number) else str(number)


def entries_header(functions: Iterable[CFunction]) -> str:
    """``entries.h``: the table of entry points that the bridge fills and the libraries call through."""
    members = "".join(
        f"    {entry_declaration(function).replace(f'py_{function.name}(', f'(*{function.name})(', 1)};\n"
        for function in functions
    )
    served = "".join(f"    {re.sub(_SERVED_NAME, _MEMBER, each)};\n" for each in SERVED)
    return (
        "#ifndef ACLNN_ENTRIES_H\n#define ACLNN_ENTRIES_H\n\n"
        "#include <stdatomic.h>\n#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n\n"
        f"struct aclnn_entries {{\n{members}{served}"
        "    /* How many calls have come, of which some may wait for Python's lock. */\n"
        "    atomic_ulong *aclnn_entered;\n};\n\n#endif\n"
    )


def table(functions: Sequence[CFunction]) -> str:
    """C code of the bridge: declares what Python implements and fills the table with it."""
    declarations = "".join(f"{entry_declaration(function)};\n" for function in functions)
    members = "".join(f"    .{function.name} = py_{function.name},\n" for function in functions)
    declarations += "".join(f"{served};\n" for served in SERVED)
    names = re.findall(_SERVED_NAME, " ".join(SERVED))
    members += "".join(f"    .aclnn_{name} = py_{name},\n" for name in names) + "    .aclnn_entered = &entered,\n"
    return f"{declarations}\nstatic const struct aclnn_entries aclnn_table = {{\n{members}}};\n"


def library(functions: Iterable[CFunction | Alias | Stub], headers: Iterable[str]) -> str:
    """The C source of one library."""
    includes = "".join(f'#include "{header}"\n' for header in headers)
    bodies = "\n".join(map(_body, functions))
    ours = "".join(f'#include "{name}"\n' for name in ("entries.h", "objects.h", "start.h", "stubs.h"))
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
    if function.name.endswith(PHASE_ONE):
        return _phase_one(function)
    if f"{function.name}{PHASE_ONE}" in FUNCTIONS:
        return _phase_two(function)
    served = _IN_C.fullmatch(function.name)
    return _definition(function.prototype, fallback(function), _call(function), _served(function, served))


def _call(function: CFunction) -> str:
    """C code that asks Python."""
    arguments = ", ".join(_border_argument(parameter.name, parameter) for parameter in function.parameters)
    call = f"aclnn_asked(entries)->{function.name}({arguments})"
    return f"({function.returns}){call}" if result_type(function) == "uintptr_t" else call


def _served(function: CFunction, matched: re.Match[str] | None) -> str:
    """C code that tries to serve a call without Python, with a placeholder for the call to Python.

    Only the placeholder for most functions.
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
    # GNU's C, as clang's: a ?: b is a ? a : b.
    return f"({function.returns}){name}({arguments}) ?: {{}}"


def _phase_one(function: CFunction) -> str:
    """Phase one: the answer that is kept for these arguments, or Python's, which is kept."""
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
    """Phase two: Python runs an executor that has been ended here, or what it has itself."""
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
    return _definition(forward.prototype, _FALLBACK["rtError_t"], call, before=unused)


def _border_argument(name: str, parameter: CParameter) -> str:
    return f"({parameter_type(parameter)}){name}"


def _definition(prototype: str, fallback: str, call: str, served: str = "{}", before: str = "") -> str:
    # The prefix is that of no parameter's name: aclnnSeluBackward has one called result.
    returns = re.sub(r"\w+\(.*", "", prototype)
    is_void = returns == "void "
    result = ("int " if is_void else returns) + "aclnn_result"
    last = "(void)aclnn_result" if is_void else "return aclnn_result"
    return (
        f"{prototype}\n{{\n    const aclnn_mode callers = aclnn_take_mode();\n"
        f"    const struct aclnn_entries *entries = aclnn_entries();\n"
        f"    {result} = entries == NULL ? {fallback} : {served.format(call)};\n\n{before}"
        f"    aclnn_give_mode_back(callers);\n    {last};\n}}\n"
    )


def exports(names: Iterable[str]) -> str:
    """A linker script that makes these names visible and nothing else."""
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local: *;\n};\n"


def config(values: Mapping[str, str]) -> str:
    """``config.h``: where this machine's Python is, how long elements are, and of which types scalars are."""
    lines = "".join(f"#define {name} {_literal(value)}\n" for name, value in values.items())
    # Python makes tensors of smaller elements.
    whole = [dtype for dtype in DataType if dtype >= 0 and dtype.bits == 8 * dtype.itemsize]
    sizes = ", ".join(f"[{dtype.value}] = {dtype.itemsize}" for dtype in whole)
    lines += f"#define ACLNN_ITEMSIZES {{{sizes}}}\n"
    lines += f"#define ACLNN_SCALAR_TYPES UINT64_C({sum(1 << dtype for dtype in SCALARS):#x})\n"
    return f"#ifndef ACLNN_CONFIG_H\n#define ACLNN_CONFIG_H\n\n{lines}\n#endif\n"


def _literal(text: str) -> str:
    """A C string of the bytes that the system knows a path by; a question mark might begin a trigraph."""
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}" for byte in os.fsencode(text))
    return f'"{"".join(plain)}"'


def source(name: str) -> str:
    """The text of a C file of this package."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
