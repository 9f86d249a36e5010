"""Cases from lists of TTK, CANN's ops test kit (``ttk aclnn``), with the files that ``--dump`` wrote next to the list.

A list is a CSV whose cells are Python literals: testcase_name, api_name, tensor_view_shapes, tensor_dtypes,
attributes, output_tensor_indexes …. The files are NAME_input_tensor_0.bin, NAME_output_0.bin and so on, where NAME is
the case's or its dump_file_prefix; inputs are numbered among all tensors of the call, outputs among the outputs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aclnn.core.operator import Kind, Operator
from aclnn.io.arguments import Raw
from aclnn.operators.registry import C_OPERATORS
from aclnn.verify.cases.arguments import operator_named
from aclnn.verify.cases.request import CaseRequest

_COLUMNS = {"testcase_name", "api_name"}
_FORMATS = (".bin", ".npy", ".pt")
"""File formats written by TTK, in its order of preference."""
_SHORT = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}


def is_list(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the rows are those of a TTK list."""
    return any(row.keys() >= _COLUMNS for row in rows)


def cases(
    path: Path, rows: Sequence[Mapping[str, str]], operator: str, common: Mapping[str, Any]
) -> Iterator[CaseRequest]:
    """Yield a request for each enabled case of an operator, or its in-place variant, whose output was dumped.

    Args:
        path: path of the list; the dumps are in the same folder.
        rows: cells by column, without empty ones.
        operator: name of the operator.
        common: attributes, which override the list's.

    Raises:
        ValueError: an invalid literal, a tensor without a file, or no case of the operator with an output.
    """
    found = operator_named(operator)
    functions = {o.function for o in C_OPERATORS if o.name in (found.name, f"inplace_{found.name}")}
    beside = {file.name for file in path.parent.iterdir()}
    dumped = 0
    for row in rows:
        if row.get("api_name") not in functions or row.get("is_enabled", "True").lower() == "false":
            continue
        try:
            request = _request(found, row, path.parent, beside, common)
        except (ValueError, TypeError) as error:  # a literal may be anything
            raise ValueError(f"{path}: {row.get('testcase_name')}: {error}") from error
        if request is not None:
            dumped += 1
            yield request
    if not dumped:
        wanted = " or ".join(sorted(functions))
        raise ValueError(
            f"{path}: expected a case of {wanted} with its output next to the list, as --dump writes it, got none"
        )


def _request(
    operator: Operator, row: Mapping[str, str], folder: Path, beside: set[str], common: Mapping[str, Any]
) -> CaseRequest | None:
    name = row.get("testcase_name", "")
    prefix = row.get("dump_file_prefix", name)
    actual = {}
    for number, parameter in enumerate(operator.outputs):
        file = _file(beside, prefix, f"output_{number}")
        if file is not None:
            actual[parameter.python_name] = file
    if not actual:
        return None
    shapes, dtypes = _literal(row, "tensor_view_shapes"), _literal(row, "tensor_dtypes")
    dtypes = dtypes * len(shapes) if len(dtypes) == 1 else dtypes
    own = [len(shapes) - len(operator.outputs) + number for number in range(len(operator.outputs))]
    places = dict(zip(operator.outputs, _literal(row, "output_tensor_indexes", own), strict=False))
    tensors = [parameter for parameter in operator.parameters if parameter.is_tensor]
    places |= {parameter: tensors.index(parameter) for parameter in operator.inputs}
    attributes = _literal(row, "attributes", {})
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes: expected a dictionary, got {attributes!r}")
    values: dict[str, Any] = operator.by_name(attributes.items())
    recorded_dtypes: dict[str, str] = {}
    recorded_shapes: dict[str, tuple[int, ...]] = {}
    for parameter, place in places.items():
        if not 0 <= place < min(len(shapes), len(dtypes)) or shapes[place] is None:
            continue
        if parameter.kind is Kind.INPUT:
            file = _file(beside, prefix, f"input_(?:tensor_)?{place}")
            if file is None:
                raise ValueError(f"expected {prefix}_input_tensor_{place} for {parameter.python_name}, got none")
            values[parameter.python_name] = file
        recorded_shapes[parameter.python_name] = tuple(shapes[place])
        recorded_dtypes[parameter.python_name] = _SHORT.get(dtypes[place], dtypes[place])
    raw = Raw(recorded_dtypes, recorded_shapes)
    values |= operator.by_name(common.items())
    return CaseRequest(operator.name, values, actual, {}, name, folder, raw=raw)


def _literal(row: Mapping[str, str], column: str, absent: Any = None) -> Any:
    if column not in row and absent is not None:
        return absent
    try:
        return ast.literal_eval(row.get(column, ""))
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(f"{column}: expected a Python literal, got {row.get(column, 'nothing')!r}") from error


def _file(beside: set[str], prefix: str, what: str) -> str | None:
    """Return the name of a dump; some versions of --dump-on-fail insert fail_."""
    found = [name for name in beside if re.fullmatch(rf"{re.escape(prefix)}_(?:fail_)?{what}\.(?:bin|npy|pt)", name)]
    return min(found, key=lambda name: (_FORMATS.index(Path(name).suffix), name), default=None)
