"""RMSNorm quantised to MX formats: aclnnRmsNormDynamicMxQuant; of a sum, aclnnAddRmsNormDynamicMxQuant and V2."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    one_of,
    restricted,
    same_dtype,
    same_shape,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_INVALID
from aclnn.operators.library.common import attribute, declared, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.microscaling import ELEMENTS, in_pairs, pairs_shape, quantized
from aclnn.operators.library.quantization.mx_quantization import (
    CEILED,
    DST_TYPE,
    HALVES,
    OCP,
    WITHOUT_RANGE,
    algorithm,
    even,
    rounding,
    rule_of,
    to_integer,
)
from aclnn.operators.library.quantization.quantization import given, is_dtype, whole_bytes
from aclnn.operators.library.quantization.quantized_norms import reciprocal_rms

_SUMMANDS = ("x1", "x2")
_THIRD = "x3Optional"


def _summands(call: Call) -> tuple[str, ...]:
    """The summands, in the order in which they are added."""
    return (*given(call, _THIRD), *_SUMMANDS) if _SUMMANDS[0] in call.arguments else ("x",)


def _gamma_dtype(call: Call, name: str) -> str | None:
    x, got = call[_summands(call)[-1]].dtype, call[name].dtype
    return None if got in (x, D.FLOAT) else f"expected data type {x.c_name} or ACL_FLOAT, got {got.c_name}"


def _like_x1(call: Call, name: str) -> str | None:
    got, like = call[name], call[_SUMMANDS[0]]
    if (got.dtype, got.shape) == (like.dtype, like.shape):
        return None
    return f"expected {like.dtype.c_name} {list(like.shape)}, got {got.dtype.c_name} {list(got.shape)}"


def _work(call: Call) -> Library | None:
    names = _summands(call)
    if call[names[-1]].size == 0:
        return None
    epsilon, of, dtype = float32(call["epsilon"]), call[names[-1]].dtype.numpy, call["yOut"].dtype
    find, to_whole, last = rule_of(call, "yOut"), to_integer(call, "roundMode"), len(call[names[-1]].shape) - 1
    sums = len(names) > 1
    outputs = ("yOut", *("xOut",) * sums, "mxscaleOut", *("rstdOut",) * call["outputRstd"])

    def normalize(*operands: Any) -> tuple[Any, ...]:
        x = np.sum([summand.astype(np.float64) for summand in operands[: len(names)]], 0)
        gamma, *rest = operands[len(names) :]
        rstd = reciprocal_rms(x, (-1,), epsilon)
        norm = x * rstd * gamma
        for beta in rest:
            norm = norm + beta
        y, scales = quantized(norm.astype(of).astype(np.float32), (last,), dtype, find, to_whole)
        found = {"yOut": y, "xOut": x, "mxscaleOut": in_pairs(scales, last), "rstdOut": rstd}
        return tuple(found[name] for name in outputs)

    return Library(normalize, (*names, "gamma", *given(call, "beta")), outputs)


def _norm(name: str, sums: bool, third: bool = False) -> Operator:
    first = _SUMMANDS[0] if sums else "x"
    inputs = [tensor_in("x1", "the first summand"), tensor_in("x2", "the second")] if sums else [tensor_in("x", "rows")]
    required = (*(_SUMMANDS if sums else ("x",)), "gamma", "yOut", *("xOut",) * sums, "mxscaleOut", "roundMode")
    with_rstd = "with outputRstd", lambda call: bool(call["outputRstd"])
    tiling = (
        dtype_in(HALVES, first),
        *((same_dtype("x2", "x1"), same_dtype("xOut", "x1")) * sums),
        each("x's type or FLOAT", ("gamma",), _gamma_dtype),
        same_dtype("beta", "gamma"),
        dtype_in(tuple(ELEMENTS), "yOut"),
        dtype_in((D.FLOAT8_E8M0,), "mxscaleOut"),
        dims_between(1, 7, first),
        *((same_shape("x2", "x1"), same_shape("xOut", "x1")) * sums),
        same_shape("yOut", first),
        shape_is("a row", lambda call: call[first].shape[-1:], "gamma", "beta"),
        one_of("scaleAlg", OCP, CEILED),
        algorithm("yOut", WITHOUT_RANGE),
        *rounding("yOut", "roundMode"),
        is_dtype("dstType", "yOut"),
        each("even", (first,), even),
        whole_bytes("yOut"),
        shape_is("two for two blocks", lambda call: pairs_shape(call[first].shape, -1), "mxscaleOut"),
        *restricted(
            *with_rstd,
            dtype_in((D.FLOAT,), "rstdOut"),
            shape_is("one for each row", lambda call: (*call[first].shape[:-1], 1), "rstdOut"),
        ),
    )
    checks = (
        *(with_code(ACLNN_ERR_PARAM_INVALID, each("as x1", (_THIRD,), _like_x1)) * third),
        *with_code(ACLNN_ERR_INNER_NULLPTR, *tiling),
    )
    return declared(
        name,
        f"x = {'x1 + x2' if sums else 'x'},  z = x / sqrt(mean(x^2) + epsilon) * gamma + beta,  "
        "mxscaleOut = 2^(floor(log2(max |z of the block|)) - emax),  yOut = round(z / mxscaleOut)",
        f"RMSNorm {'of a sum ' * sums}over the last dimension, quantized to an MX format.",
        (
            *inputs,
            tensor_in("gamma", "the weight, of x's type or FLOAT"),
            optional_in("beta", "the bias added to the normalized rows"),
            *((optional_in(_THIRD, "a third summand"),) * third),
            attribute("epsilon", Kind.DOUBLE, "added to the mean square; rounded to float32"),
            attribute(
                "scaleAlg",
                Kind.INT64,
                "the scale algorithm: 0 as in the OCP specification; 1, 8-bit types, without saturation",
            ),
            Parameter(
                "roundMode", "roundMode", Kind.STRING, "the rounding mode: rint; for 4-bit types also round or floor"
            ),
            DST_TYPE,
            attribute("outputRstd", Kind.BOOL, "whether to write rstdOut"),
            tensor_out("yOut", "the quantized result"),
            *((tensor_out("xOut", "the sum"),) * sums),
            tensor_out("mxscaleOut", "the scales of blocks of rows, in pairs; FLOAT8_E8M0"),
            tensor_out("rstdOut", "the reciprocal root mean square of each row; FLOAT", optional=True),
        ),
        (
            present(*required),
            *restricted(*with_rstd, present("rstdOut")),
            *restricted("unless x has no rows", lambda call: 0 not in call[_summands(call)[-1]].shape[:-1], *checks),
        ),
        _work,
        HALVES,
        CLASS_950,
    )


OPERATORS = (
    _norm("rms_norm_dynamic_mx_quant", sums=False),
    _norm("add_rms_norm_dynamic_mx_quant", sums=True),
    _norm("add_rms_norm_dynamic_mx_quant_v2", sums=True, third=True),
)
