"""Products of groups of rows added to sums, as gradients of experts' weights are: aclnnGroupedMatmulAdd."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    floating,
    one_of,
    present,
    rule,
    same_dtype,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, camel, support, tensor_in, tensor_out

#: That groups divide the rows of both factors, which the products sum over.
_INNER = 2
_ENDS, _SIZES = 0, 1


def _plain_format(call: Call, name: str) -> str | None:
    allowed, got = (Format.FORMAT_ND, *([Format.FORMAT_NCL] if name == "yRef" else [])), call[name].format
    expected = " or ".join(each.c_name for each in allowed)
    return None if got in allowed else f"expected format {expected}, got {got.c_name}"


def _some_columns(call: Call) -> str | None:
    got = call["x"].shape
    return None if got[1] else f"x: expected at least 1 column, got {extents(got)}"


def _as_many_rows(call: Call) -> str | None:
    expected, got = call["x"].shape[0], call["weight"].shape[0]
    return None if got == expected else f"weight: expected {expected} rows (as many as x), got {got}"


def _sums(call: Call) -> str | None:
    groups, k, n = call["groupList"].size, call["x"].shape[1], call["weight"].shape[1]
    allowed: list[tuple[int, ...]] = [(groups, k, n)]
    if call.product not in CLASS_950:
        allowed.append((groups * k, n))
    got = call["yRef"].shape
    return None if got in allowed else f"yRef: expected shape {' or '.join(map(extents, allowed))}, got {extents(got)}"


def _work(call: Call) -> Library | None:
    if call["yRef"].size == 0:
        return None
    sizes, shape = call.arguments.get("groupListType", _ENDS) == _SIZES, call["yRef"].shape

    def add(y: Any, x: Any, weight: Any, groups: Any) -> Any:
        ends = np.cumsum(groups) if sizes else groups
        if ends.size and (ends[-1] > len(x) or np.any(np.diff(ends, prepend=0) < 0)):
            raise IndexError(f"groupList: expected ends of groups up to {len(x)}, got {ends.tolist()}")
        found = y.reshape(len(ends), x.shape[1], -1).astype(np.float64)
        for total, rows in zip(found, np.split(np.arange(ends[-1] if ends.size else 0), ends[:-1]), strict=True):
            total += x[rows].T.astype(np.float64) @ weight[rows].astype(np.float64)
        return found.reshape(shape)

    return Library(add, ("yRef", "x", "weight", "groupList"), ("yRef",))


def _declared(version: int) -> Operator:
    name = "grouped_matmul_add" + ("_v2" if version > 1 else "")
    kind = (attribute("groupListType", Kind.INT64, "0: groupList has ends, 1: sizes"),) * (version > 1)
    return Operator(
        name=name,
        function=camel(name),
        summary="Add to each of several sums the product of a group of rows, the first factor transposed.",
        formula="yRef[g] = yRef[g] + x[rows of g]^T @ weight[rows of g]",
        parameters=(
            tensor_in("x", "(rows, K)"),
            tensor_in("weight", "(rows, N)"),
            tensor_in("groupList", "where each group ends; INT64"),
            tensor_out("yRef", "(groups, K, N), before Ascend 950 also (groups * K, N); FLOAT"),
            attribute("transposeX", Kind.BOOL, "true"),
            attribute("transposeWeight", Kind.BOOL, "false"),
            attribute("groupType", Kind.INT64, "2: groups divide rows"),
            *kind,
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            present("x", "weight", "groupList", "yRef"),
            *(one_of(of.name, _ENDS, _SIZES) for of in kind),
            one_of("transposeX", True),
            one_of("transposeWeight", False),
            one_of("groupType", _INNER),
            each("plain format", ("x", "weight", "groupList", "yRef"), _plain_format),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                dims_between(2, 2, "x", "weight"),
                dims_between(1, 1, "groupList"),
                rule("some columns: x", _some_columns),
                rule("as many rows as x: weight", _as_many_rows),
                rule("a sum for each group: yRef", _sums),
            ),
            dtype_in((D.FLOAT,), "yRef"),
            dtype_in((D.INT64,), "groupList"),
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            same_dtype("weight", "x"),
        ),
        work=_work,
    )


OPERATORS = (_declared(1), _declared(2))
