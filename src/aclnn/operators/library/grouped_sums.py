"""Products of groups of rows added to sums, as gradients of experts' weights are: aclnnGroupedMatmulAdd."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import dims_between, dtype_in, extents, floating, one_of, present, rule, same_dtype
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.operators.library.common import MODERN, attribute, camel, support, tensor_in, tensor_out

#: That groups divide the rows of both factors, which the products sum over.
_INNER = 2
_ENDS, _SIZES = 0, 1


def _as_many_rows(call: Call) -> str | None:
    expected, got = call["x"].shape[0], call["weight"].shape[0]
    return None if got == expected else f"weight: expected {expected} rows (as many as x), got {got}"


def _sums(call: Call) -> str | None:
    groups, k, n = call["groupList"].size, call["x"].shape[1], call["weight"].shape[1]
    got = call["yRef"].shape
    if got in ((groups, k, n), (groups * k, n)):
        return None
    return f"yRef: expected shape [{groups}, {k}, {n}] or [{groups * k}, {n}], got {extents(got)}"


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
            tensor_out("yRef", "(groups, K, N), or (groups * K, N); FLOAT"),
            attribute("transposeX", Kind.BOOL, "true"),
            attribute("transposeWeight", Kind.BOOL, "false"),
            attribute("groupType", Kind.INT64, "2: groups divide rows"),
            *kind,
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            present("x", "weight", "groupList", "yRef"),
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            same_dtype("weight", "x"),
            dtype_in((D.INT64,), "groupList"),
            dtype_in((D.FLOAT,), "yRef"),
            one_of("transposeX", True),
            one_of("transposeWeight", False),
            one_of("groupType", _INNER),
            *(one_of(each.name, _ENDS, _SIZES) for each in kind),
            dims_between(2, 2, "x", "weight"),
            dims_between(1, 1, "groupList"),
            rule("as many rows as x: weight", _as_many_rows),
            rule("a sum for each group: yRef", _sums),
        ),
        work=_work,
    )


OPERATORS = (_declared(1), _declared(2))
