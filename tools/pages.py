"""Generate the pages of operators and of other C functions, and the type stub of the C names, from declarations.

``python -m tools.pages operators > docs/operators.md``, ``python -m tools.pages functions > docs/c-functions.md``,
``python -m tools.pages stub > src/aclnn/capi/__init__.pyi``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator

from aclnn import operators
from aclnn.capi import stub
from aclnn.capi.op_types import TYPES
from aclnn.capi.prototype import FUNCTIONS
from aclnn.core.checks import computed
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Elementwise, Operator
from aclnn.core.products import Product
from aclnn.core.status import name_of
from aclnn.formula import Gradient
from aclnn.kernels.cpu.elementwise.fitted import fast
from aclnn.kernels.products import products
from aclnn.operators import OPERATORS
from aclnn.operators.library import SUBJECTS
from aclnn.toolkit.rt_aliases import ALIASES
from aclnn.toolkit.stubs import REJECTED, STUBS, Stub
from tools.works import works_of

_INTRODUCTION = """\
# The operators

Made from the declarations by `python -m tools.pages operators > docs/operators.md`. Everything else about an
operator is where it is declared: `src/aclnn/operators/`.

A data type is listed where the product's kernel takes it. On a product that is not listed, phase one returns an error:
the code of the check that depends on the product (561003 at once if it asks for a kernel), else 561103 after all
checks, unless the tensors are empty.
"""

_PRODUCTS = """\
## Products

`ACLNN_SOC_NAME` or `aclnn.set_soc_name` selects the product that a process emulates, by the SoC name that
`aclrtGetSocName` returns on a device.
"""

_BOUNDS = """\
The bound is that of float32 results, in units of the last place; 16-bit ones are rounded once, within 0.51 units. Next
to a zero of its derivative a gradient may be 1 unit off.
"""

_LIBRARY = """\
## Plain operators

Programs call these around activations and norms. They have C functions alone, and NumPy computes them: 16-bit types in
float32, rounded once; integers wrap; floating numbers become integers by truncation, at the ends of the range by
saturation, and NaN 0. Sums of float32 are made in float64, so that they do not depend on the layout.
"""

_FUNCTIONS = """\
# The C functions

Made from their declarations (`src/aclnn/capi`) by `python -m tools.pages functions > docs/c-functions.md`. Headers,
libraries and `aclnn.capi` have these, and both phases of each of [the operators](operators.md). What is not here is
absent from the headers too, so that a program that needs it does not compile.
"""

_NAMED_ONLY = """\
## Named only

No header declares these. The libraries define them so that programs that refer to them load, such as
[torch_npu](torch-npu.md); `aclGetRecentErrMsg` names the function that was called.
"""

_GROUPS = {
    "runtime": "Start and stop, devices, contexts, streams, events, error texts",
    "waits": "Events: waits with a limit, what is outside of graphs, how many there are",
    "stream_configs": "Streams of a configuration, how many there are",
    "graphs": "Graphs: captured tasks",
    "callbacks": "Functions of a program that streams call",
    "limits": "Limits of cores",
    "timeouts": "Limits of time",
    "system": "Settings, what a device has, versions",
    "queries": "What devices have and how they do",
    "identities": "Numbers and names of devices",
    "memory": "Memory",
    "attributes": "Memory by its attributes, the host's memory for devices",
    "notifies": "Notifies, and values that streams wait for",
    "copies": "Copies of rows and of many ranges, fills with words",
    "indirect": "Copies whose addresses lie in memory, reductions, kinds of memory",
    "objects": "Tensors, scalars, arrays, lists",
    "executors": "Executors",
    "single_operators": "Operators by type",
    "collectives": "Collective communication (`hccl/hccl.h`, `libhccl.so`)",
}

_BY_TYPE = """\
`aclopCompileAndExecute`, its V2 and `aclopExecuteV2` take these types, with the inputs, outputs and attributes of
CANN's definitions. Each computes the `aclnn` function next to it, or has none; other types return
200001.
"""


def operators_page() -> str:
    """Return the text of docs/operators.md."""
    parts = [_INTRODUCTION, _products(), _overview(), *(_section(operator) for operator in OPERATORS), _library()]
    return "\n".join(parts)


def _library() -> str:
    parts = [_LIBRARY]
    for subject, declared in SUBJECTS.items():
        rows = [(f"`{_call(o)}`", f"`aclnnop/{o.header}`", f"`{o.formula}`", _not_on(o)) for o in declared]
        parts += f"### {subject}\n", _table(("first phase", "header", "computes", "not on"), rows)
    return "\n".join(parts)


def _call(operator: Operator) -> str:
    return f"{operator.function}({', '.join(parameter.name for parameter in operator.parameters)})"


def _not_on(operator: Operator) -> str:
    return ", ".join(product.title for product in Product if product not in operator.support)


def functions_page() -> str:
    """Return the text of docs/c-functions.md."""
    rows: dict[str, list[tuple[str, str]]] = {module: [] for module in _GROUPS}
    for function in FUNCTIONS.values():
        module = function.implementation.__module__.rpartition(".")[2]
        if module in rows:  # functions of operators have a page of their own
            meaning = inspect.getdoc(function.implementation) or ""
            rows[module].append((f"`{function.prototype}`", meaning.split("\n")[0]))
    older = [(f"`{alias.prototype}`", f"`{alias.to}`") for alias in ALIASES]
    groups = [*zip(_GROUPS.values(), rows.values(), strict=True), ("The layer below (`libruntime.so`)", older)]
    sections = [f"## {title}\n\n{_table(('function', 'what it does'), lines)}" for title, lines in groups]
    sections.insert(len(_GROUPS), f"{_BY_TYPE}\n{_table(('type', 'function'), _types())}")
    stubs = _table(("function", "answer"), ((f"`{stub.name}`", _answer(stub)) for stub in STUBS))
    return "\n".join([_FUNCTIONS, *sections, _NAMED_ONLY, stubs])


def _types() -> list[tuple[str, str]]:
    listed = [(name, called.operator.function) for name, called in sorted(TYPES.items())]
    return [(f"`{name}`", "" if name == function else f"`{function}`") for name, function in listed]


def _answer(stub: Stub) -> str:
    if stub.answer != REJECTED:
        return stub.answer
    code, name = str(stub.code), name_of(stub.code)
    return code if name == code else f"{code} `{name}`"


def _products() -> str:
    rows = [(product.title, f"`{product.example}`") for product in Product]
    return f"{_PRODUCTS}\n" + _table(("product", "such as"), rows) + "\n## Overview\n"


def _overview() -> str:
    rows = [(f"[`{o.name}`](#{o.name})", f"`{o.function}`", f"`aclnnop/{o.header}`", o.summary) for o in OPERATORS]
    bounds = [(f"`{o.name}`", _taken(o), _without(o), _bound(o)) for o in OPERATORS]
    return "\n".join(
        [
            _table(("Python, torch, command line", "C", "header", "computes"), rows),
            _BOUNDS,
            _table(("function", "data types", "not on", "bound"), bounds),
        ]
    )


def _taken(operator: Operator) -> str:
    return ", ".join(dtype.numpy.name for dtype in computed(operator) if _is_taken(operator, dtype))


def _is_taken(operator: Operator, dtype: DataType) -> bool:
    return any(dtype in dtypes for dtypes in operator.support.values())


def _without(operator: Operator) -> str:
    return ", ".join(product.title for product in Product if product not in operator.support)


def _bound(operator: Operator) -> str:
    """Return the error bound of an operator in units of float32's last place."""
    work = next(works_of(operator), None)
    if not isinstance(work, Elementwise):
        return "" if work is None else "[numerics.md](numerics.md)"
    if fast(work.formula, DataType.FLOAT) is None:
        return "2.6" if products(work.formula, len(work.inputs) + len(work.numbers)) else "0.51"
    return "1; 2.6 for dy other than 1" if isinstance(work.formula, Gradient) else "1"


def _section(operator: Operator) -> str:
    parameters = [
        (f"`{p.name}`", f"`{p.python_name}`", p.kind.label, "yes" if p.optional else "", p.meaning)
        for p in operator.parameters
    ]
    checks = [
        (str(i + 1), check.name, f"{check.code} `{name_of(check.code)}`") for i, check in enumerate(operator.checks)
    ]
    return "\n".join(
        [
            f"## {operator.name}\n",
            f"{operator.summary}\n",
            f"```text\n{_lines(operator.formula)}\n```\n",
            f"```c\n{_prototypes(operator)}\n```\n",
            f"```text\n{_python_signature(operator)}\n```\n",
            _table(("C", "Python", "takes", "may be null", "meaning"), parameters),
            _table(("product", *(dtype.numpy_name or "" for dtype in computed(operator))), _support(operator)),
            "Checks, the first that fails decides:\n",
            _table(("no.", "what must hold", "else"), checks),
        ]
    )


def _lines(formula: str) -> str:
    return formula.replace(";  ", "\n").replace(",  ", "\n")


def _prototypes(operator: Operator) -> str:
    arguments = [*(p.declaration for p in operator.parameters), "uint64_t *workspaceSize", "aclOpExecutor **executor"]
    name = f"aclnnStatus {operator.function}"
    first = ",\n    ".join(arguments)
    second = f"void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, {operator.stream_type}stream"
    return f"{name}GetWorkspaceSize(\n    {first});\n{name}(\n    {second});"


def _python_signature(operator: Operator) -> str:
    signature = operators.signature_of(operator)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    arguments = inspect.Signature(bare)
    return f"aclnn.{operator.name}{arguments}"


def _support(operator: Operator) -> Iterator[tuple[str, ...]]:
    for product in Product:
        if product in operator.support:
            taken = operator.support[product]
            yield (product.title, *("yes" if dtype in taken else "" for dtype in computed(operator)))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


#: Page generators by command-line argument.
PAGES = {"operators": operators_page, "functions": functions_page, "stub": stub.text}

if __name__ == "__main__":
    if sys.argv[1:] not in [[page] for page in PAGES]:
        sys.exit(f"tools.pages: expected {' or '.join(PAGES)}, got {' '.join(sys.argv[1:]) or 'nothing'}")
    sys.stdout.write(PAGES[sys.argv[1]]())
