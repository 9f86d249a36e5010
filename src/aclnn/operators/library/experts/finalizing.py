"""Combination of experts' results: aclnnMoeFinalizeRouting and later versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    each,
    extents,
    generated,
    one_of,
    rule,
    same_dtype,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import MODERN, attribute, expect_within, support, tensor_in, tensor_out
from aclnn.operators.library.experts.routing import at_least


def _names(call: Call) -> tuple[str, str, str, str, str]:
    """Return the parameter names of addends, biases, weights and experts."""
    return _FIRST_NAMES if "x1" in call.arguments else _NAMES


def _weights(call: Call) -> int:
    """Return the number of experts per token whose rows are added up."""
    scales = call[_names(call)[3]]
    return int(call.arguments.get("k", 1) if scales is None else scales.shape[1])


def _final_shape(call: Call) -> tuple[int, int]:
    return call["expandedRowIdx"].size // _weights(call), int(call["expandedX"].shape[-1])


def _one_each(call: Call) -> tuple[int, int]:
    return _final_shape(call)[0], _weights(call)


def _expanded_dims(call: Call) -> str | None:
    expected, got = 3 if call.arguments.get("dropPadMode", 0) % 2 else 2, len(call["expandedX"].shape)
    return None if got == expected else f"expandedX: expected {expected} dimensions, got {got}"


def _some_weights(call: Call) -> str | None:
    name, scales, k = _names(call)[3], call[_names(call)[3]], call.arguments.get("k", 1)
    if scales is not None and scales.shape[1] < 1:
        return f"{name}: expected at least 1 column, got {extents(scales.shape)}"
    if scales is None or k < 2 or scales.shape[1] == k:
        return None
    return f"{name}: expected {k} columns (k), got {extents(scales.shape)}"


def _divisible(call: Call) -> str | None:
    got, by = call["expandedRowIdx"].size, _weights(call)
    return None if got % by == 0 else f"expandedRowIdx: expected a multiple of {by} elements, got {got}"


def _after_first(call: Call) -> str | None:
    first, second, *_ = _NAMES
    alone = call[first] is None and call[second] is not None
    return f"{second}: expected null without {first}, got a tensor" if alone else None


def _bias(call: Call, name: str) -> str | None:
    experts, (of, got) = call[_names(call)[4]], (call["expandedX"].shape, call[name].shape)
    if experts is None:
        return f"expected null without {_names(call)[4]}, got a tensor"
    fits = len(got) == 2 and got[1] == of[-1] and got[0] >= _weights(call) and (len(of) == 2 or got[0] == of[0])
    if fits:
        return None
    rows = "as many rows as expandedX has blocks" if len(of) == 3 else f"at least {_weights(call)} rows"
    return f"expected {rows} of {of[-1]} elements, got {extents(got)}"


def _scales_dtype(call: Call, name: str) -> str | None:
    of, got = call["expandedX"].dtype, call[name].dtype
    if got == of or (of == D.BF16 and got == D.FLOAT) or (call.product in CLASS_950 and got in FLOATING):
        return None
    return (
        f"expected data type {of.c_name} (that of expandedX){' or ACL_FLOAT' if of == D.BF16 else ''}, got {got.c_name}"
    )


def _final_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    names = [name for name in _names(call) if call[name] is not None]
    x1, x2, bias_name, scales_name, experts_name = _names(call)
    shape, by_columns = _one_each(call), call.arguments.get("dropPadMode", 0) < 2

    def finalize(expanded: Any, indices: Any, *further: Any) -> Any:
        given = dict(zip(names, further, strict=True))
        rows = expanded.reshape(-1, expanded.shape[-1])
        expect_within("expandedRowIdx", indices, -1, len(rows) - 1)
        places = indices.reshape(shape[::-1]).T if by_columns else indices.reshape(shape)
        kept, taken = places >= 0, np.zeros((*shape, rows.shape[1]))
        taken[kept] = rows[places[kept]]
        if bias_name in given:
            expect_within(experts_name, given[experts_name], 0, len(given[bias_name]) - 1)
            taken += given[bias_name][given[experts_name]]
        if scales_name in given:
            taken *= given[scales_name][..., None].astype(np.float64)
        return sum((given[name] for name in (x1, x2) if name in given), taken.sum(1))

    return Library(finalize, ("expandedX", "expandedRowIdx", *names), ("out",))


def _final_checks(names: tuple[str, ...], *tiling: Check) -> tuple[Check, ...]:
    """Return the checks of related shapes."""
    x1, x2, bias, scales, experts = names
    return (
        rule("dimensions of rows: expandedX", _expanded_dims),
        dims_between(1, 1, "expandedRowIdx"),
        dims_between(2, 2, scales),
        *tiling,
        rule(f"a column for each expert: {scales}", _some_weights),
        rule("a row for each of them: expandedRowIdx", _divisible),
        shape_is("a row for each token", _final_shape, x1, x2, "out"),
        each("a row for each expert", (bias,), _bias),
        shape_is("one for each row", _one_each, scales, experts),
    )


def _not_computed(call: Call, name: str) -> str | None:
    return None if call[name] == () else "expected null (special experts are not supported here), got an object"


def _final(name: str, *further: Parameter, tiling: tuple[Check, ...], absent: tuple[str, ...] = ()) -> Operator:
    x1, x2, bias, scales, experts = _NAMES
    not_computed = each("not computed", absent, _not_computed)
    return Operator(
        name=name,
        summary="Combine the weighted rows of each token's experts, with shared experts.",
        formula="out[i] = x1Optional[i] + x2Optional[i] + sum over j of scalesOptional[i, j] * "
        "(expandedX[expandedRowIdx[i, j]] + biasOptional[expertIdxOptional[i, j]])",
        parameters=(
            _EXPANDED,
            _ROWS,
            *(
                Parameter(of, of, Kind.INPUT, meaning, optional=True)
                for of, meaning in zip(_NAMES, _MEANINGS, strict=True)
            ),
            *further,
            tensor_out("out", "a row for each token", const=True),
        ),
        support=support(FLOATING, MODERN),
        checks=generated(
            ("expandedX", "expandedRowIdx"),
            ("out",),
            lambda product: [(d, D.INT32, d) for d in FLOATING],
            one_of("dropPadMode", 0, 1, 2, 3),
            *_final_checks(_NAMES, *tiling),
            rule(f"a second one after the first: {x2}", _after_first),
            optional=(
                *(same_dtype(of, "expandedX") for of in (x1, x2, bias)),
                each("data type with expandedX", (scales,), _scales_dtype),
                dtype_in({D.INT32}, experts),
                *(with_code(ACLNN_ERR_INNER_NULLPTR, not_computed) if absent else ()),
            ),
        ),
        work=_final_work,
    )


_FIRST_NAMES = ("x1", "x2Optional", "bias", "scales", "expandedExpertIdx")
_NAMES = ("x1Optional", "x2Optional", "biasOptional", "scalesOptional", "expertIdxOptional")
_MEANINGS = (
    "the first addend, such as a shared expert's output",
    "the second addend",
    "the bias of each expert",
    "the weights of the experts of each token",
    "the expert indices of each token; INT32",
)
_EXPANDED = tensor_in("expandedX", "the rows by expert, or blocks of capacity rows")
_ROWS = tensor_in("expandedRowIdx", "the row indices of the tokens, -1 for none; INT32")
_READ = attribute("dropPadMode", Kind.INT64, "the order of expandedRowIdx, 0, 1: by expert, 2, 3: by token")
_SPECIAL = ("xOptional", "alpha1Optional", "alpha2Optional", "vOptional")
_RANGES = ("zeroExpertRange", "copyExpertRange", "constantExpertRange")


OPERATORS = (
    Operator(
        name="moe_finalize_routing",
        summary="Combine the weighted rows of each token's experts, with a shared expert.",
        formula="out[i] = x1[i] + x2Optional[i] + sum over j of scales[i, j] * "
        "(expandedX[expandedRowIdx[j * rows + i]] + bias[expandedExpertIdx[i, j]])",
        parameters=(
            _EXPANDED,
            *(
                Parameter(of, of, Kind.INPUT, meaning, optional=of == "x2Optional")
                for of, meaning in zip(_FIRST_NAMES[:4], _MEANINGS[:4], strict=True)
            ),
            _ROWS,
            tensor_in(_FIRST_NAMES[4], _MEANINGS[4]),
            tensor_out("out", "a row for each token", const=True),
        ),
        support=support(FLOATING, A2_CLASS),
        checks=generated(
            ("expandedX", "x1", "bias", "scales", "expandedRowIdx", "expandedExpertIdx"),
            ("out",),
            lambda product: [(d, d, d, d, D.INT32, D.INT32, d) for d in FLOATING],
            *_final_checks(_FIRST_NAMES),
            optional=(same_dtype("x2Optional", "expandedX"),),
            code=ACLNN_ERR_PARAM_INVALID,
        ),
        work=_final_work,
    ),
    _final("moe_finalize_routing_v2", _READ, tiling=()),
    _final(
        "moe_finalize_routing_v4",
        *(Parameter(of, of, Kind.INPUT, "null", optional=True) for of in _SPECIAL),
        _READ,
        *(Parameter(of, of, Kind.INT_ARRAY, "null or empty", optional=True) for of in _RANGES),
        attribute("k", Kind.INT64, "the number of experts per token without scalesOptional"),
        tiling=(at_least("k", 1),),
        absent=(*_SPECIAL, *_RANGES),
    ),
)
