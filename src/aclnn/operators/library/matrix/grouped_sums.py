"""Sums over groups of rows, as gradients of experts' weights and biases are: of products, of the rows themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    extents,
    fits,
    floating,
    one_of,
    rule,
    same_dtype,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Kind, Library, Operator
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import INDEX_TYPES, MODERN, attribute, optional_in, support, tensor_in, tensor_out

#: Group type in which groups divide the rows of both factors, over which the products sum.
_INNER = 2
_ENDS, _SIZES = 0, 1


def _plain_format(call: Call, name: str) -> str | None:
    allowed, got = (Format.FORMAT_ND, *([Format.FORMAT_NCL] if name == "yRef" else [])), call[name].format
    expected = " or ".join(each.c_name for each in allowed)
    return None if got in allowed else f"expected format {expected}, got {got.c_name}"


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
    kind = (attribute("groupListType", Kind.INT64, "the contents of groupList, 0: ends, 1: sizes"),) * (version > 1)
    return Operator(
        name=name,
        summary="Grouped product with the first factor transposed, accumulated in place.",
        formula="yRef[g] = yRef[g] + x[rows of g]^T @ weight[rows of g]",
        parameters=(
            tensor_in("x", "(rows, K)"),
            tensor_in("weight", "(rows, N)"),
            tensor_in("groupList", "the end of each group; INT64"),
            tensor_out("yRef", "(groups, K, N), before Ascend 950 also (groups * K, N); FLOAT"),
            attribute("transposeX", Kind.BOOL, "true"),
            attribute("transposeWeight", Kind.BOOL, "false"),
            attribute("groupType", Kind.INT64, "2: groups divide the rows"),
            *kind,
        ),
        support=support((D.FLOAT16, D.BF16), MODERN),
        checks=(
            *(one_of(of.name, _ENDS, _SIZES) for of in kind),
            one_of("transposeX", True),
            one_of("transposeWeight", False),
            one_of("groupType", _INNER),
            each("plain format", ("x", "weight", "groupList", "yRef"), _plain_format),
            *with_code(
                ACLNN_ERR_INNER_TILING_ERROR,
                dims_between(2, 2, "x", "weight"),
                dims_between(1, 1, "groupList"),
                value_is("at least 1 column", lambda got: got[1], "x"),
                fits("{} rows (as many as x)", lambda call, got: (call["x"].shape[0], got.shape[0]), "weight"),
                rule("a sum for each group: yRef", _sums),
            ),
            dtype_in((D.FLOAT,), "yRef"),
            dtype_in((D.INT64,), "groupList"),
            dtype_in(lambda product: floating(product) - {D.FLOAT}, "x"),
            same_dtype("weight", "x"),
        ),
        work=_work,
    )


_GROUPS = "groupIdxOptional"
_MOST_GROUPS = 2048


def _grouped_rows(call: Call) -> str | None:
    dims, got = 3 if call[_GROUPS] is None else 2, call["gradY"].shape
    if len(got) == dims:
        return None
    words = "without" if dims == 3 else "with"
    return f"gradY: expected {dims} dimensions {words} {_GROUPS}, got {len(got)}: {extents(got)}"


def _few_groups(call: Call) -> str | None:
    if call[_GROUPS] is None or (len(call[_GROUPS].shape) == 1 and call[_GROUPS].size <= _MOST_GROUPS):
        return None
    return f"{_GROUPS}: expected 1 dimension of at most {_MOST_GROUPS} numbers, got {extents(call[_GROUPS].shape)}"


def _sums_of_rows(call: Call) -> tuple[int, ...]:
    groups = call["gradY"].shape[0] if call[_GROUPS] is None else call[_GROUPS].size
    return groups, call["gradY"].shape[-1]


def _bias_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    if call[_GROUPS] is None:
        return Library(lambda rows: rows.sum(1, np.float64), ("gradY",), ("out",))
    sizes = call.arguments.get("groupIdxType", _ENDS) == _SIZES

    def add(rows: Any, groups: Any) -> Any:
        ends = np.cumsum(groups) if sizes else groups
        if ends[-1] != len(rows) or np.any(np.diff(ends, prepend=0) < 0):
            raise IndexError(f"{_GROUPS}: expected ends of groups up to {len(rows)}, got {ends.tolist()}")
        return np.stack([part.sum(0, np.float64) for part in np.split(rows, ends[:-1])])

    return Library(add, ("gradY", _GROUPS), ("out",))


def _bias(version: int) -> Operator:
    name = "grouped_bias_add_grad" + ("_v2" if version > 1 else "")
    kind = (attribute("groupIdxType", Kind.INT64, f"0: {_GROUPS} has ends, 1: sizes"),) * (version > 1)
    return Operator(
        name=name,
        summary="Add up the rows of each group, as the gradient of a bias for each group.",
        formula=f"out[g] = sum of gradY[rows of g], without {_GROUPS} of gradY[g]",
        parameters=(
            tensor_in("gradY", "(rows, H); (groups, rows, H) without groups"),
            optional_in(_GROUPS, "where each group ends; INT32 or INT64"),
            *kind,
            tensor_out("out", "(groups, H)"),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN),
        checks=(
            *(one_of(of.name, _ENDS, _SIZES) for of in kind),
            dtype_in(floating, "gradY"),
            dtype_in(INDEX_TYPES, _GROUPS),
            same_dtype("out", "gradY"),
            rule("rows in groups: gradY", _grouped_rows),
            rule(f"few groups: {_GROUPS}", _few_groups),
            shape_is("a sum for each group", _sums_of_rows, "out"),
        ),
        work=_bias_work,
        in_header_of="grouped_bias_add_grad",
    )


OPERATORS = (_declared(1), _declared(2), _bias(1), _bias(2))
