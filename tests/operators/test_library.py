"""Library-backed operators: every check has a call that breaks it, every value is PyTorch's."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aclnn.capi import operators as entries
from aclnn.capi.prototype import CALLS, FUNCTIONS
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import LISTS, Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare, prepare_layouts
from aclnn.operators import BY_NAME as OPERATOR_BY_NAME
from aclnn.operators.library import LIBRARY_OPERATORS
from tests.cases.table import (
    GRID,
    INVALID,
    MODERN,
    NINE,
    NO_KERNEL,
    NULL,
    PRODUCTS,
    Arguments,
    T,
    changed,
    dtype,
    shape,
)
from tests.helpers.calls import run

torch: Any = pytest.importorskip("torch", reason="PyTorch is the reference of the library-backed operators")

BY_NAME = {operator.name: operator for operator in LIBRARY_OPERATORS}
FLOATING = (D.FLOAT, D.FLOAT16, D.BF16, D.DOUBLE)
INTEGERS = (D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64)
COMPLEX = (D.COMPLEX64, D.COMPLEX128)
TRAINED = (D.FLOAT, D.FLOAT16, D.BF16)
REAL = (*FLOATING, *INTEGERS)
ALL = (*REAL, D.BOOL, *COMPLEX)

every_operator = pytest.mark.parametrize("operator", LIBRARY_OPERATORS, ids=lambda operator: operator.name)


def scalar(dtype: D, value: Any) -> Scalar:
    return Scalar(dtype, np.asarray(value).astype(dtype.numpy).tobytes())


def number_of(dtype: D) -> Scalar:
    """A scalar as PyTorch gives one beside a tensor of that type."""
    if dtype == D.BOOL:
        return scalar(D.BOOL, True)
    return scalar(D.INT64, 3) if dtype in INTEGERS else scalar(D.DOUBLE, 2.5)


#: Functions of one number by their names, which are PyTorch's, with the data types of their arguments.
ELEMENTARY: Mapping[str, tuple[D, ...]] = {
    "exp": (*FLOATING, D.INT64, D.BOOL, *COMPLEX),
    "expm1": (*TRAINED, D.INT64, D.BOOL),
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "sin", "cos"), ALL),
    **dict.fromkeys(("log1p", "atan"), (*REAL, D.BOOL)),
    "erf": (*FLOATING, D.INT64, D.BOOL),
    "tanh": (*TRAINED, *INTEGERS, D.BOOL),
}
#: Those whose results have the type of their arguments.
OF_ONE_TYPE: Mapping[str, tuple[D, ...]] = {
    "ceil": FLOATING,
    "floor": REAL,
    "round": (*FLOATING, D.INT32, D.INT64),
    "trunc": TRAINED,
    "sign": (*FLOATING, D.INT32, D.INT64, D.BOOL, *COMPLEX),
    "bitwise_not": (*INTEGERS, D.BOOL),
    "reciprocal": (*FLOATING, *COMPLEX),
    "logical_not": (*REAL, D.BOOL),
}
COMPARISONS = {f"{name}_{kind}": name for name in ("eq", "ne", "gt", "ge", "lt", "le") for kind in ("tensor", "scalar")}
BITWISE = {f"bitwise_{name}_{kind}": name for name in ("and", "or", "xor") for kind in ("tensor", "scalar")}
LOGIC = ("logical_and", "logical_or", "logical_xor", "inplace_logical_and", "inplace_logical_or")
#: Functions of two operands that exclude complex ones, by PyTorch's name.
OF_TWO = {
    "maximum": "maximum",
    "minimum": "minimum",
    "remainder_tensor_tensor": "remainder",
    "remainder_tensor_scalar": "remainder",
    "fmod_tensor": "fmod",
    "fmod_scalar": "fmod",
    "floor_divide": "floor_divide",
    "floor_divides": "floor_divide",
}
#: Their second operand is not 0.
DIVIDING = (*OF_TWO, "div_mod", "div_mods")
CLAMPS = (
    *("clamp", "clamp_min", "clamp_max", "inplace_clamp_max", "hardtanh", "inplace_hardtanh", "clamp_tensor"),
    *(f"{where}clamp_{name}_tensor" for name in ("min", "max") for where in ("", "inplace_")),
)

SPREADS = ("std", "var_correction", "std_mean_correction", "var_mean")

PADS = tuple(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3))
#: Five dimensions before padding and after, from the second to the last; those that a padding of rank 1 to 3 has.
UNPADDED, MARGINS = (2, 1, 4, 3, 5), (1, 2, 0, 1, 3, 2)


def padded(name: str, d: D) -> dict[str, Any]:
    rank = int(name[-2])
    shape = UNPADDED[-rank - 1 :]
    grown = [n + sum(MARGINS[2 * at : 2 * at + 2]) for at, n in enumerate(shape[:0:-1])]
    after = (shape[0], *grown[::-1])
    return {"self": T(d, shape), "padding": MARGINS[: 2 * rank], "out": T(d, after)}


DRAWN = {"seed": 5, "offset": 3}

NLL = {"target": T(D.INT64, (2,)), "reduction": 1, "ignoreIndex": -100}
#: Losses of pairs of elements: PyTorch's function, what it takes from a call, what the reduction is called.
PAIRWISE: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]] = {
    "mse_loss": lambda x, a: torch.nn.functional.mse_loss(x, a["target"], reduction=a["reduction"]),
    "l1_loss": lambda x, a: torch.nn.functional.l1_loss(x, a["target"], reduction=a["reduction"]),
    "smooth_l1_loss": lambda x, a: torch.nn.functional.smooth_l1_loss(
        x, a["target"], reduction=a["reduction"], beta=a["beta"]
    ),
    "soft_margin_loss": lambda x, a: torch.nn.functional.soft_margin_loss(x, a["target"], reduction=a["reduction"]),
    "binary_cross_entropy": lambda x, a: torch.nn.functional.binary_cross_entropy(
        x, a["target"], a["weightOptional"], reduction=a["reduction"]
    ),
    "binary_cross_entropy_with_logits": lambda x, a: torch.nn.functional.binary_cross_entropy_with_logits(
        x, a["target"], a["weightOptional"], reduction=a["reduction"], pos_weight=a["posWeightOptional"]
    ),
    # Its mean, of elements, is one that PyTorch warns of.
    "kl_div": lambda x, a: torch.kl_div(x, a["target"], 1, log_target=a["logTarget"]),
}
PROBABILITIES = {("binary_cross_entropy", "self")} | {
    (name, "target") for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div")
}
SCALAR_LISTS = {"scalars": (scalar(D.FLOAT, 3), scalar(D.DOUBLE, -0.5))}

FOREACH = tuple(operator.name for operator in LIBRARY_OPERATORS if operator.name.startswith("foreach"))

#: Planes of 5 × 4 in two samples of four channels; a kernel of 3 × 2 for two groups of channels.
IMAGES, KERNELS, FOUND = (2, 4, 5, 4), (6, 2, 3, 2), (2, 6, 2, 5)
CONVOLUTION = {"stride": (2, 1), "padding": (1, 1), "dilation": (2, 1), "transposed": False, "outputPadding": (0, 0)}
POOLING = {"kernelSize": (3, 2), "stride": (2,), "padding": (1, 0), "ceilMode": True}
PIXELS = {"target": T(D.INT64, (2, 5, 4))}
DILATED, POOLED = POOLING | {"dilation": (1, 2)}, (2, 4, 3, 2)
AVERAGE = POOLING | {"countIncludePad": False, "divisorOverride": 0, "cubeMathType": 0}


def convolved(d: D) -> Arguments:
    return {"input": T(d, IMAGES), "weight": T(d, KERNELS), "groups": 2, "cubeMathType": 0} | CONVOLUTION


#: What a valid call has beyond tensors of one type and shape.
SPECIAL: Mapping[str, Callable[[D], Arguments]] = {
    "cast": lambda d: {"dtype": D.FLOAT, "out": T(D.FLOAT, GRID)},
    "reduce_sum": lambda d: {"dims": (1,), "keepDims": False, "dtype": d, "out": T(d, GRID[:1])},
    "mean": lambda d: {"dim": (-2,), "keepDim": True, "dtype": d, "out": T(d, (1, *GRID[1:]))},
    "min": lambda d: {"out": T(d, ())},
    "max": lambda d: {"out": T(d, (1,))},
    "abs": lambda d: {"out": T(D.FLOAT if d == D.COMPLEX64 else d, GRID)},
    "masked_select": lambda d: {"mask": T(D.BOOL, GRID), "out": T(d, (math.prod(GRID),))},
    "div": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    "divs": lambda d: {"out": T(D.FLOAT if d in (*INTEGERS, D.BOOL) else d, GRID)},
    "cat": lambda d: {"tensors": (T(d, (2, 1)), T(d, (0,)), T(d, (2, 2))), "dim": -1, "out": T(d, GRID)},
    "stack": lambda d: {"tensors": (T(d, GRID), T(d, GRID)), "dim": -2, "out": T(d, (2, 2, 3))},
    **{
        name: lambda d: {"out": T(d if d in (*FLOATING, *COMPLEX) else D.FLOAT, GRID)}
        for name in (*ELEMENTARY, "reciprocal")
    },
    "sqrt": lambda d: {"out": T(D.DOUBLE if d == D.INT64 else d if d in (*FLOATING, *COMPLEX) else D.FLOAT, GRID)},
    **{name: lambda d: {"mode": 2 if d in INTEGERS else 1} for name in ("div_mod", "div_mods")},
    **{
        name: lambda d: {"clipValueMin": scalar(D.INT64, 1), "clipValueMax": scalar(D.DOUBLE, 2)}
        for name in CLAMPS
        if not name.endswith("tensor")
    },
    "s_where": lambda d: {"condition": T(D.BOOL, (3,))},
    "inplace_masked_fill_tensor": lambda d: {"mask": T(D.BOOL, GRID), "value": T(d, ())},
    "is_close": lambda d: {"rtol": 0.5, "atol": 1.0, "equal_nan": True, "out": T(D.BOOL, GRID)},
    "equal": lambda d: {"out": T(D.BOOL, (1,))},
    "inplace_masked_fill_scalar": lambda d: {"mask": T(D.BOOL, GRID)},
    **{f"{where}{name}": lambda d: {"diagonal": 1} for name in ("triu", "tril") for where in ("", "inplace_")},
    "linalg_vector_norm": lambda d: {
        "ord": scalar(D.DOUBLE, 2),
        "dims": (-1,),
        "keepDims": True,
        "dtype": d,
        "out": T(d, (2, 1)),
    },
    **{name: lambda d: {"dim": -1, "keepdim": False, "out": T(D.INT64, GRID[:1])} for name in ("arg_max", "arg_min")},
    **{name: lambda d: {"dim": (1,), "keepDim": False, "out": T(d, GRID[:1])} for name in ("amax", "amin")},
    **{name: lambda d: {"dim": (-2,), "keepdim": True, "out": T(D.BOOL, (1, 3))} for name in ("any", "all")},
    **{
        name: lambda d: {"dim": -1, "keepdim": False, "out": T(d, GRID[:1]), "indices": T(D.INT64, GRID[:1])}
        for name in ("max_dim", "min_dim")
    },
    "log_sum_exp": lambda d: {"dim": (1,), "keepDim": True, "out": T(d if d in FLOATING else D.FLOAT, (2, 1))},
    "norm": lambda d: {"pScalar": scalar(D.DOUBLE, 1.5), "dim": (1,), "keepdim": False, "out": T(d, GRID[:1])},
    **{
        name: lambda d: (
            {"dim": (1,), "correction": 1, "keepdim": False}
            | {name: T(d, GRID[:1]) for name in ("out", "stdOut", "meanOut", "varOut")}
        )
        for name in SPREADS
    },
    "prod": lambda d: {"dtype": d, "out": T(d, ())},
    "prod_dim": lambda d: {"dim": 0, "keepDim": False, "dtype": d, "out": T(d, GRID[1:])},
    "cumsum": lambda d: {"dim": 1, "dtype": d},
    "cumprod": lambda d: {"axis": scalar(D.INT64, 0), "dtype": d},
    "mm": lambda d: {"mat2": T(d, (3, 4)), "cubeMathType": 1, "out": T(d, (2, 4))},
    "matmul": lambda d: {"self": T(d, (5, 2, 3)), "mat2": T(d, (3, 4)), "cubeMathType": 1, "out": T(d, (5, 2, 4))},
    "batch_mat_mul": lambda d: {
        "self": T(d, (5, 2, 3)),
        "mat2": T(d, (1, 3, 4)),
        "cubeMathType": 4,
        "out": T(d, (5, 2, 4)),
    },
    "addmm": lambda d: {
        "self": T(d, (2, 4)),
        "mat1": T(d, GRID),
        "mat2": T(d, (3, 4)),
        "cubeMathType": 1,
        "out": T(d, (2, 4)),
    },
    "nll_loss": lambda d: NLL | {"weight": T(d, (3,)), "out": T(d, ()), "totalWeightOut": T(d, ())},
    "nll_loss_backward": lambda d: NLL | {"gradOutput": T(d, ()), "weight": T(d, (3,)), "totalWeight": T(d, (1,))},
    "arange": lambda d: {
        "start": scalar(D.INT64, 7),
        "end": scalar(D.INT64, -2),
        "step": scalar(D.INT64, -3),
        "out": T(d, (3,)),
    },
    "dropout_gen_mask_v2": lambda d: {
        "shape": (3, 50),
        "prob": 0.0,
        "seed": 5,
        "offset": 0,
        "probDataType": D.FLOAT,
        "out": T(D.UINT8, (2, 16)),
    },
    "dropout_v3": lambda d: (
        DRAWN | {"input": T(d, GRID), "optionalNoiseShape": None, "p": 0.0, "maskOut": T(D.UINT8, (16,))}
    ),
    "inplace_normal": lambda d: DRAWN | {"mean": 1.5, "std": 0.0},
    "inplace_uniform": lambda d: DRAWN | {"low": 2.0, "high": 2.0},
    "inplace_bernoulli": lambda d: DRAWN | {"prob": scalar(D.DOUBLE, 1)},
    "inplace_random": lambda d: DRAWN | {"low": 3, "high": 4},
    "randperm": lambda d: DRAWN | {"n": 1, "out": T(d, (1,))},
    "inplace_fill_tensor": lambda d: {"value": T(d, (1,))},
    "linspace": lambda d: {"start": scalar(D.DOUBLE, 1), "end": scalar(D.INT64, 8), "steps": 8, "out": T(d, (8,))},
    "eye": lambda d: {"n": 2, "m": 3},
    "baddbmm": lambda d: {
        "self": T(d, (2, 4)),
        "batch1": T(d, (5, 2, 3)),
        "batch2": T(d, (5, 3, 4)),
        "cubeMathType": 1,
        "out": T(d, (5, 2, 4)),
    },
    "mv": lambda d: {"vec": T(d, (3,)), "cubeMathType": 1, "out": T(d, (2,))},
    "dot": lambda d: {"self": T(d, (4,)), "tensor": T(d, (4,)), "out": T(d, ())},
    "amp_update_scale": lambda d: (
        {name: T(d, (1,)) for name in ("currentScale", "foundInf", "updatedScale")}
        | {name: T(D.INT32, (1,)) for name in ("growthTracker", "updatedGrowthTracker")}
        | {"growthFactor": 2.0, "backoffFactor": 0.5, "growthInterval": 1}
    ),
    "dropout_do_mask": lambda d: {"mask": T(D.UINT8, (4, 4)), "prob": 0.75},
    **{
        name: lambda d: {"target": T(d, (3,)), "reduction": 1, "beta": 1.5, "logTarget": False, "out": T(d, ())}
        for name in PAIRWISE
    },
    **{
        f"{name}_backward": lambda d: {"gradOutput": T(d, ()), "reduction": 1, "beta": 1.5, "logTarget": False}
        for name in PAIRWISE
    },
    "nll_loss2d": lambda d: (
        NLL | PIXELS | {"self": T(d, IMAGES), "weight": T(d, (4,)), "out": T(d, ()), "totalWeight": T(d, ())}
    ),
    "nll_loss2d_backward": lambda d: (
        NLL
        | PIXELS
        | {name: T(d, IMAGES) for name in ("self", "out")}
        | {"gradOutput": T(d, ()), "weight": T(d, (4,)), "totalWeight": T(d, ())}
    ),
    "index": lambda d: {
        "self": T(d, IMAGES),
        "indices": (None, T(D.INT64, (3, 1)), T(D.INT32, (2,))),
        "out": T(d, (2, 3, 2, 4)),
    },
    "index_put_impl": lambda d: {
        "indices": (T(D.INT64, (4,)),),
        "values": T(d, (4, 3)),
        "accumulate": d not in (D.FLOAT16, D.BF16),
        "unsafe": False,
    },
    "index_select": lambda d: {"dim": -1, "index": T(D.INT64, (4,)), "out": T(d, (2, 4))},
    "gather": lambda d: {"dim": 1, "index": T(D.INT64, (2, 5)), "out": T(d, (2, 5))},
    **{
        name: lambda d: {"dim": -1, "index": T(D.INT64, (1, 3)), "reduce": int(d in (D.FLOAT, D.INT32))}
        for name in ("scatter", "inplace_scatter", "scatter_value", "inplace_scatter_value", "scatter_add")
    },
    "index_add": lambda d: {"dim": 0, "index": T(D.INT32, (3,)), "source": T(d, (3, 3))},
    "sort": lambda d: {"stable": True, "dim": 0, "descending": True, "indicesOut": T(D.INT64, GRID)},
    "topk": lambda d: {
        "k": 2,
        "dim": -1,
        "largest": False,
        "sorted": True,
        "valuesOut": T(d, (2, 2)),
        "indicesOut": T(D.INT64, (2, 2)),
    },
    "nonzero": lambda d: {"out": T(D.INT64, (6, 2))},
    "nonzero_v2": lambda d: {"out": T(D.INT64, (2, 6))},
    "flip": lambda d: {"dims": (-1, 0)},
    "roll": lambda d: {"shifts": (2, -1), "dims": (1, 0)},
    "repeat": lambda d: {"repeats": (2, 1, 2), "out": T(d, (2, 2, 6))},
    "repeat_interleave_int_with_dim": lambda d: {"repeats": 2, "dim": -1, "outputSize": 6, "out": T(d, (2, 6))},
    "constant_pad_nd": lambda d: {"pad": (-1, 2, 1, 0), "out": T(d, (3, 4))},
    **{name: lambda d, name=name: padded(name, d) for name in PADS},
    **{
        f"{name}_backward": lambda d, name=name: (
            {"gradOutput": padded(name, d)["out"], "gradInput": padded(name, d)["self"]} | padded(name, d)
        )
        for name in PADS
    },
    "embedding": lambda d: {"indices": T(D.INT64, (4,)), "out": T(d, (4, 3))},
    "embedding_dense_backward": lambda d: {
        "grad": T(d, (2, 2, 3)),
        "indices": T(D.INT64, (2, 2)),
        "numWeights": 2,
        "paddingIdx": 2**64 - 1,
        "scaleGradByFreq": True,
        "out": T(d, GRID),
    },
    **{name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} for name in FOREACH},
    **{
        name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} | SCALAR_LISTS
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    "foreach_non_finite_check_and_unscale": lambda d: {
        "scaledGrads": (T(d, GRID), T(d, (4,))),
        "foundInf": T(D.FLOAT, (1,)),
        "inScale": T(D.FLOAT, (1,)),
    },
    "foreach_norm": lambda d: {
        "x": (T(d, GRID), T(d, (4,))),
        "scalar": scalar(D.FLOAT, 1),
        "out": (T(d, ()), T(d, (1,))),
    },
    "convolution": lambda d: convolved(d) | {"bias": T(d, (6,)), "output": T(d, FOUND)},
    "convolution_backward": lambda d: (
        convolved(d)
        | {
            "gradOutput": T(d, FOUND),
            "biasSizes": (6,),
            "outputMask": (True, True, True),
            "gradInput": T(d, IMAGES),
            "gradWeight": T(d, KERNELS),
            "gradBias": T(d, (6,)),
        }
    ),
    "max_pool2d_with_indices": lambda d: (
        DILATED | {"self": T(d, IMAGES), "out": T(d, POOLED), "indices": T(D.INT64, POOLED)}
    ),
    "max_pool2d_with_indices_backward": lambda d: (
        DILATED
        | {
            "gradOutput": T(d, POOLED),
            "self": T(d, IMAGES),
            "indices": T(D.INT32, POOLED),
            "gradInput": T(d, IMAGES),
        }
    ),
    "max_pool2d_with_mask": lambda d: (
        DILATED | {"self": T(d, IMAGES), "out": T(d, POOLED), "indices": T(D.INT8, (2, 4, 6, 64))}
    ),
    "max_pool2d_with_mask_backward": lambda d: (
        DILATED
        | {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "indices": T(D.INT8, (2, 4, 6, 64))}
        | {"gradInput": T(d, IMAGES)}
    ),
    "avg_pool2d": lambda d: AVERAGE | {"self": T(d, IMAGES), "out": T(d, POOLED)},
    "avg_pool2d_backward": lambda d: (
        AVERAGE | {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "gradInput": T(d, IMAGES)}
    ),
    "adaptive_avg_pool2d": lambda d: {"self": T(d, IMAGES), "outputSize": (3, 2), "out": T(d, POOLED)},
    "adaptive_avg_pool2d_backward": lambda d: {"gradOutput": T(d, POOLED), "self": T(d, IMAGES), "out": T(d, IMAGES)},
    "apply_adam_w_v2": lambda d: {
        "step": T(D.FLOAT, (1,)),
        "lr": 0.125,
        "beta1": 0.75,
        "beta2": 0.5,
        "weightDecay": 0.25,
        "eps": 0.0625,
        "amsgrad": True,
        "maximize": True,
    },
    **{
        name: lambda d: {"out": T(D.BOOL, GRID)}
        for name in (*COMPARISONS, *LOGIC[:3], "is_finite", "is_pos_inf", "is_neg_inf")
    },
}

#: The data types of valid calls where these are not all.
DTYPES: Mapping[str, tuple[D, ...]] = {
    "inplace_div": (*FLOATING, *COMPLEX),
    "inplace_divs": (*FLOATING, *COMPLEX),
    "inplace_one": (*REAL, D.BOOL),
    "mean": (*REAL, *COMPLEX),
    "min": (*REAL, D.BOOL),
    "max": (*REAL, D.BOOL),
    "abs": (*REAL, D.COMPLEX64),
    **ELEMENTARY,
    **{
        f"inplace_{name}": tuple(d for d in dtypes if d in (*FLOATING, *COMPLEX)) for name, dtypes in ELEMENTARY.items()
    },
    **{f"{where}{name}": dtypes for name, dtypes in OF_ONE_TYPE.items() for where in ("", "inplace_")},
    "reciprocal": ALL,
    "tanh_backward": FLOATING,
    **{name: (*REAL, D.BOOL) for name in COMPARISONS if name[:2] in ("gt", "ge", "lt", "le")},
    **dict.fromkeys(("is_finite", "is_pos_inf", "is_neg_inf", "is_close", "maximum", "minimum"), (*REAL, D.BOOL)),
    **dict.fromkeys(DIVIDING[2:], REAL),
    **{
        f"{where}pow_{kind}": (*REAL, *COMPLEX)
        for kind in ("tensor_scalar", "tensor_tensor", "scalar_tensor")
        for where in ("", "inplace_")
    },
    **dict.fromkeys(CLAMPS, REAL),
    "rsubs": (*REAL, *COMPLEX),
    "arange": (*FLOATING, D.INT32, D.INT64),
    "dropout_gen_mask_v2": (D.UINT8,),
    "dropout_do_mask": TRAINED,
    "neg": (*FLOATING, D.INT8, D.INT32, D.INT64, *COMPLEX),
    **dict.fromkeys(("addcmul", "inplace_addcmul"), (*FLOATING, D.INT8, D.UINT8, D.INT32, D.INT64)),
    **dict.fromkeys(("addcdiv", "inplace_addcdiv"), FLOATING),
    **{f"inplace_masked_fill_{kind}": (*TRAINED, D.INT8, D.INT32, D.INT64, D.BOOL) for kind in ("scalar", "tensor")},
    **{f"{where}{name}": (*REAL, D.BOOL) for name in ("triu", "tril") for where in ("", "inplace_")},
    **dict.fromkeys(("arg_max", "arg_min"), REAL),
    **dict.fromkeys(("sort", "topk"), (*REAL, D.BOOL)),
    **dict.fromkeys(PADS, (*REAL, *COMPLEX)),
    **{f"{name}_backward": (*FLOATING, *COMPLEX) for name in PADS},
    **dict.fromkeys(("amax", "amin", "max_dim", "min_dim", "log_sum_exp"), (*REAL, D.BOOL)),
    **dict.fromkeys((*SPREADS, "norm"), FLOATING),
    **dict.fromkeys(("cumsum", "cumprod"), (*REAL, *COMPLEX)),
    **dict.fromkeys(
        (
            *("lerp", "lerps", "inplace_lerp", "inplace_lerps"),
            "linalg_vector_norm",
            "mm",
            "matmul",
            "batch_mat_mul",
            "addmm",
            "nll_loss",
            "nll_loss_backward",
            "nll_loss2d",
            "nll_loss2d_backward",
            *PAIRWISE,
            *(f"{name}_backward" for name in PAIRWISE),
            "embedding_dense_backward",
            "apply_adam_w_v2",
            "convolution",
            "convolution_backward",
            "max_pool2d_with_indices",
            "max_pool2d_with_indices_backward",
            "max_pool2d_with_mask",
            "max_pool2d_with_mask_backward",
            "avg_pool2d",
            "avg_pool2d_backward",
            "adaptive_avg_pool2d",
            "adaptive_avg_pool2d_backward",
            *FOREACH,
        ),
        TRAINED,
    ),
    **dict.fromkeys(BITWISE, (*INTEGERS, D.BOOL)),
    **dict.fromkeys(("baddbmm", "mv", "dot", "amp_update_scale", "dropout_v3"), TRAINED),
    "inplace_normal": FLOATING,
    **dict.fromkeys(("inplace_uniform", "randperm", "linspace"), REAL),
    **dict.fromkeys(("inplace_bernoulli", "inplace_random", "eye"), (*REAL, D.BOOL)),
    "masked_select": (*REAL, D.BOOL),
    "cat": (*REAL, D.BOOL, D.COMPLEX64),
    # PyTorch subtracts no booleans.
    **dict.fromkeys(("sub", "inplace_sub", "subs", "inplace_subs"), (*REAL, *COMPLEX)),
}

#: PyTorch's answer: from tensors, numbers and attributes by C name.
REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "add": lambda a: torch.add(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_add": lambda a: torch.add(a["selfRef"], a["other"], alpha=a["alpha"]),
    "adds": lambda a: torch.add(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_adds": lambda a: torch.add(a["selfRef"], a["other"], alpha=a["alpha"]),
    "sub": lambda a: torch.sub(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_sub": lambda a: torch.sub(a["selfRef"], a["other"], alpha=a["alpha"]),
    "subs": lambda a: torch.sub(a["self"], a["other"], alpha=a["alpha"]),
    "inplace_subs": lambda a: torch.sub(a["selfRef"], a["other"], alpha=a["alpha"]),
    "mul": lambda a: a["self"] * a["other"],
    "inplace_mul": lambda a: a["selfRef"] * a["other"],
    "muls": lambda a: a["self"] * a["other"],
    "inplace_muls": lambda a: a["selfRef"] * a["other"],
    "div": lambda a: a["self"] / a["other"],
    "inplace_div": lambda a: a["selfRef"] / a["other"],
    "divs": lambda a: a["self"] / a["other"],
    "inplace_divs": lambda a: a["selfRef"] / a["other"],
    "cast": lambda a: a["self"].real.to(torch.float32),
    "inplace_copy": lambda a: a["src"],
    "inplace_fill_scalar": lambda a: torch.full_like(a["selfRef"], a["value"]),
    "inplace_one": lambda a: torch.ones_like(a["selfRef"]),
    "inplace_zero": lambda a: torch.zeros_like(a["selfRef"]),
    "reduce_sum": lambda a: a["self"].any(1) if a["self"].dtype == torch.bool else a["self"].sum(1).to(a["self"].dtype),
    "mean": lambda a: _mean(a["self"]),
    "min": lambda a: a["self"].min(),
    "max": lambda a: a["self"].max(),
    "abs": lambda a: a["self"].abs(),
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(_precise(_first(a)))
        for name in (*ELEMENTARY, "reciprocal")
        for where in ("", "inplace_")
    },
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(_first(a))
        for name in OF_ONE_TYPE
        if name not in ("reciprocal", "sign", "round")
        for where in ("", "inplace_")
    },
    "sign": lambda a: a["self"].sgn(),
    "round": lambda a: a["self"].double().round(),
    "tanh_backward": lambda a: torch.ops.aten.tanh_backward(_wide(a["gradOutput"]), _wide(a["output"])),
    **{name: lambda a, word=word: getattr(torch, word)(a["self"], a["other"]) for name, word in COMPARISONS.items()},
    **{
        name: lambda a, name=name: getattr(torch, name.removeprefix("inplace_"))(_first(a), a["other"])
        for name in LOGIC
    },
    "is_finite": lambda a: a["self"].isfinite(),
    "is_pos_inf": lambda a: a["self"].isposinf(),
    "is_neg_inf": lambda a: a["self"].isneginf(),
    "is_close": lambda a: torch.isclose(_wide(a["self"]), _wide(a["other"]), 0.5, 1.0, True),
    "equal": lambda a: torch.tensor([torch.equal(a["self"], a["other"])]),
    **{name: lambda a, word=word: getattr(torch, word)(*_whole(a)) for name, word in OF_TWO.items()},
    "div_mod": lambda a: torch.div(*_whole(a), rounding_mode="floor" if a["mode"] == 2 else "trunc"),
    "div_mods": lambda a: torch.div(*_whole(a), rounding_mode="floor" if a["mode"] == 2 else "trunc"),
    "rsubs": lambda a: torch.rsub(a["self"], a["other"], alpha=a["alpha"]),
    **{
        f"{where}pow_{kind}": lambda a: _power(_first(a), a["exponent"])
        for kind in ("tensor_scalar", "tensor_tensor", "scalar_tensor")
        for where in ("", "inplace_")
    },
    **{
        name: lambda a, word=word: getattr(torch, f"bitwise_{word}")(a["self"], a["other"])
        for name, word in BITWISE.items()
    },
    "dropout_v3": lambda a: (a["input"], torch.full((16,), 255)),
    "inplace_normal": lambda a: torch.full(GRID, 1.5),
    "inplace_uniform": lambda a: torch.full(GRID, 2.0),
    "inplace_bernoulli": lambda a: torch.ones(GRID),
    "inplace_random": lambda a: torch.full_like(a["selfRef"], 3),
    "randperm": lambda a: torch.zeros(1),
    "inplace_fill_tensor": lambda a: a["value"].expand(GRID),
    "linspace": lambda a: torch.arange(1, 9),
    "eye": lambda a: torch.eye(2, 3),
    "baddbmm": lambda a: torch.baddbmm(
        *(_wide(a[each]) for each in ("self", "batch1", "batch2")), beta=a["beta"], alpha=a["alpha"]
    ),
    "mv": lambda a: _wide(a["self"]) @ _wide(a["vec"]),
    "dot": lambda a: _wide(a["self"]) @ _wide(a["tensor"]),
    "amp_update_scale": lambda a: (a["currentScale"] * 0.5, torch.zeros(1)),
    "masked_select": lambda a: torch.masked_select(a["self"], a["mask"]),
    "cat": lambda a: torch.cat(a["tensors"], -1),
    "arange": lambda a: torch.arange(7, -2, -3),
    "dropout_gen_mask_v2": lambda a: torch.full((2, 16), 255),
    "dropout_do_mask": lambda a: _wide(a["self"]) * 4 * _bits(a["mask"], 6).reshape(GRID),
    "stack": lambda a: torch.stack(a["tensors"], -2),
    "neg": lambda a: -a["self"],
    "sqrt": lambda a: (a["self"].double() if a["self"].dtype == torch.int64 else a["self"]).sqrt(),
    **{
        f"{where}{name}": lambda a, name=name: getattr(torch, name)(
            _first(a), a["tensor1"], a["tensor2"], value=a["value"]
        )
        for name in ("addcmul", "addcdiv")
        for where in ("", "inplace_")
    },
    **{
        f"{where}{name}": lambda a: _lerp(_first(a), a["end"], a["weight"])
        for name in ("lerp", "lerps")
        for where in ("", "inplace_")
    },
    **dict.fromkeys(CLAMPS, lambda a: _clamped(a)),
    "s_where": lambda a: torch.where(a["condition"], a["self"], a["other"]),
    **{
        f"inplace_masked_fill_{kind}": lambda a: a["selfRef"].masked_fill(a["mask"], a["value"])
        for kind in ("scalar", "tensor")
    },
    "triu": lambda a: a["self"].triu(1),
    "inplace_triu": lambda a: a["selfRef"].triu(1),
    "tril": lambda a: a["self"].tril(1),
    "inplace_tril": lambda a: a["selfRef"].tril(1),
    "linalg_vector_norm": lambda a: torch.linalg.vector_norm(a["self"], 2, -1, keepdim=True),
    "arg_max": lambda a: a["self"].argmax(-1),
    "index": lambda a: a["self"][:, a["indices"][1], a["indices"][2].long()],
    "index_put_impl": lambda a: a["selfRef"].index_put((a["indices"][0],), a["values"], a["accumulate"]),
    "index_select": lambda a: a["self"].index_select(-1, a["index"]),
    "gather": lambda a: a["self"].gather(1, a["index"]),
    **{
        name: lambda a: _scattered(_first(a), a["index"], a["src"] if "src" in a else a["value"], a["reduce"])
        for name in ("scatter", "inplace_scatter", "scatter_value", "inplace_scatter_value")
    },
    "scatter_add": lambda a: _scattered(a["self"], a["index"], a["src"], adds=True),
    "index_add": lambda a: (
        a["self"] | torch.zeros_like(a["self"]).index_put((a["index"].long(),), a["source"], True)
        if a["self"].dtype == torch.bool
        else _precise_number(a["self"]).index_add(0, a["index"], _precise_number(a["source"]), alpha=a["alpha"])
    ),
    "sort": lambda a: tuple(a["self"].sort(dim=0, descending=True, stable=True)),
    "topk": lambda a: tuple(each[:, :2] for each in a["self"].sort(dim=1, stable=True)),
    "nonzero": lambda a: a["self"].nonzero(),
    "nonzero_v2": lambda a: a["self"].nonzero().T,
    "flip": lambda a: a["self"].flip((-1, 0)),
    "roll": lambda a: a["self"].roll((2, -1), (1, 0)),
    "repeat": lambda a: a["self"].repeat(2, 1, 2),
    "repeat_interleave_int_with_dim": lambda a: a["self"].repeat_interleave(2, -1),
    "constant_pad_nd": lambda a: torch.constant_pad_nd(a["self"], (-1, 2, 1, 0), a["value"]),
    **{name: lambda a, name=name: getattr(torch.ops.aten, name)(a["self"], a["padding"]) for name in PADS},
    **{
        f"{name}_backward": lambda a, name=name: getattr(torch.ops.aten, f"{name}_backward")(
            _precise(a["gradOutput"]), _precise(a["self"]), a["padding"]
        )
        for name in PADS
    },
    "arg_min": lambda a: a["self"].argmin(-1),
    "amax": lambda a: a["self"].amax(1),
    "amin": lambda a: a["self"].amin(1),
    "any": lambda a: a["self"].any(-2, keepdim=True),
    "all": lambda a: a["self"].all(-2, keepdim=True),
    "max_dim": lambda a: tuple(a["self"].max(-1)),
    "min_dim": lambda a: tuple(a["self"].min(-1)),
    "log_sum_exp": lambda a: _wide(a["self"]).logsumexp(1, keepdim=True),
    "norm": lambda a: _wide(a["self"]).norm(1.5, 1),
    "std": lambda a: _wide(a["self"]).std(1),
    "var_correction": lambda a: _wide(a["self"]).var(1),
    "std_mean_correction": lambda a: torch.std_mean(_wide(a["self"]), 1),
    "var_mean": lambda a: torch.var_mean(_wide(a["self"]), 1),
    "prod": lambda a: a["self"].all() if a["self"].dtype == torch.bool else a["self"].prod(dtype=a["self"].dtype),
    "prod_dim": lambda a: (
        a["self"].all(0) if a["self"].dtype == torch.bool else a["self"].prod(0, dtype=a["self"].dtype)
    ),
    "cumsum": lambda a: a["self"].cumsum(1, dtype=a["self"].dtype),
    "cumprod": lambda a: a["input"].cumprod(0, dtype=a["input"].dtype),
    "mm": lambda a: _wide(a["self"]) @ _wide(a["mat2"]),
    "matmul": lambda a: _wide(a["self"]) @ _wide(a["mat2"]),
    "batch_mat_mul": lambda a: torch.matmul(_wide(a["self"]), _wide(a["mat2"])),
    "addmm": lambda a: torch.addmm(
        *(_wide(a[each]) for each in ("self", "mat1", "mat2")), beta=a["beta"], alpha=a["alpha"]
    ),
    "nll_loss": lambda a: torch.ops.aten.nll_loss_forward(_wide(a["self"]), a["target"], _wide(a["weight"]), 1, -100),
    "nll_loss_backward": lambda a: torch.ops.aten.nll_loss_backward(
        _wide(a["gradOutput"]), _wide(a["self"]), a["target"], _wide(a["weight"]), 1, -100, _wide(a["totalWeight"])[0]
    ),
    **{name: lambda a, name=name: _loss(name, a) for name in PAIRWISE},
    **{f"{name}_backward": lambda a, name=name: _slope(name, a) for name in PAIRWISE},
    "nll_loss2d": lambda a: torch.ops.aten.nll_loss2d_forward(
        _wide(a["self"]), a["target"], _wide(a["weight"]), 1, -100
    ),
    "nll_loss2d_backward": lambda a: torch.ops.aten.nll_loss2d_backward(
        *(_wide(a["gradOutput"]), _wide(a["self"]), a["target"], _wide(a["weight"])),
        *(1, -100, _wide(a["totalWeight"])),
    ),
    "embedding": lambda a: a["weight"][a["indices"]],
    "embedding_dense_backward": lambda a: torch.ops.aten.embedding_dense_backward(
        _wide(a["grad"]), a["indices"], 2, -1, True
    ),
    "foreach_add_list_v2": lambda a: torch._foreach_add(_wides(a["x1"]), _wides(a["x2"]), alpha=a["alpha"]),
    "foreach_sub_list_v2": lambda a: torch._foreach_sub(_wides(a["x1"]), _wides(a["x2"]), alpha=a["alpha"]),
    **{
        f"foreach_{name}_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x1"]), _wides(a["x2"])
        )
        for name in ("mul", "div", "maximum", "minimum")
    },
    **{
        f"foreach_{name}_scalar_v2": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), a["scalar"]
        )
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
    },
    **{
        f"foreach_{name}_scalar_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), [3, -0.5]
        )
        for name in ("add", "sub", "mul", "div")
    },
    **{
        f"foreach_{name}_scalar_{kind}": lambda a, name=name, kind=kind: getattr(torch, f"_foreach_{name}")(
            *(_wides(a[each]) for each in ("x1", "x2", "x3")), a["scalar"] if kind == "v2" else [3.0, -0.5]
        )
        for name in ("addcmul", "addcdiv")
        for kind in ("v2", "list")
    },
    "foreach_non_finite_check_and_unscale": lambda a: [_wide(x) * a["inScale"][0] for x in a["scaledGrads"]],
    "foreach_lerp_scalar": lambda a: [_lerp(*pair, a["weight"]) for pair in zip(a["x1"], a["x2"], strict=True)],
    **{
        f"foreach_{name}": lambda a, name=name: getattr(torch, f"_foreach_{name}")(_wides(a["x"]))
        for name in ("sqrt", "reciprocal", "exp", "abs", "neg", "sign")
    },
    "foreach_copy": lambda a: a["x"],
    "foreach_norm": lambda a: torch._foreach_norm(_wides(a["x"]), 1),
    "apply_adam_w_v2": lambda a: _adam(a),
    "convolution": lambda a: torch.ops.aten.convolution(
        _wide(a["input"]), _wide(a["weight"]), _wide(a["bias"]), (2, 1), (1, 1), (2, 1), False, (0, 0), 2
    ),
    "convolution_backward": lambda a: torch.ops.aten.convolution_backward(
        *(_wide(a[name]) for name in ("gradOutput", "input", "weight")),
        *((6,), (2, 1), (1, 1), (2, 1), False, (0, 0), 2, (True, True, True)),
    ),
    "max_pool2d_with_indices": lambda a: torch.nn.functional.max_pool2d(
        _wide(a["self"]), (3, 2), 2, (1, 0), (1, 2), True, return_indices=True
    ),
    "max_pool2d_with_indices_backward": lambda a: (
        torch.zeros(8, 20, dtype=torch.float64)
        .scatter_add(1, a["indices"].long().reshape(8, -1), _wide(a["gradOutput"]).reshape(8, -1))
        .reshape(IMAGES)
    ),
    "max_pool2d_with_mask": lambda a: _masked_maxima(a),
    "max_pool2d_with_mask_backward": lambda a: _unmasked(a),
    "avg_pool2d": lambda a: torch.nn.functional.avg_pool2d(_wide(a["self"]), (3, 2), 2, (1, 0), True, False),
    "avg_pool2d_backward": lambda a: torch.ops.aten.avg_pool2d_backward(
        _wide(a["gradOutput"]), _wide(a["self"]), (3, 2), (2, 2), (1, 0), True, False, None
    ),
    "adaptive_avg_pool2d": lambda a: torch.nn.functional.adaptive_avg_pool2d(_wide(a["self"]), (3, 2)),
    "adaptive_avg_pool2d_backward": lambda a: torch.ops.aten._adaptive_avg_pool2d_backward(
        _wide(a["gradOutput"]), _wide(a["self"])
    ),
}


def _bits(mask: Any, count: int) -> Any:
    """The first bits of a mask, the lowest of each byte first."""
    return torch.tensor([(int(mask.flatten()[at // 8]) >> at % 8) & 1 for at in range(count)])


def _wide(values: Any) -> Any:
    return values.double()


def _precise(values: Any) -> Any:
    return values.to(torch.complex128) if values.is_complex() else values.double()


def _first(a: Mapping[str, Any]) -> Any:
    """The argument that some functions replace."""
    return a["selfRef"] if "selfRef" in a else a["self"]


def _whole(a: Mapping[str, Any]) -> list[Any]:
    """Two operands; 16-bit ones, for which PyTorch rounds between two steps, as float64."""
    return [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in (a["self"], a["other"])]


def _loss(name: str, a: Mapping[str, Any], leaf: Any = None) -> Any:
    wide = {key: _wide(value) if isinstance(value, torch.Tensor) else value for key, value in a.items()}
    more = {"reduction": ("none", "mean", "sum")[a["reduction"]], "target": wide["target"].expand(GRID)}
    return PAIRWISE[name](wide["self"] if leaf is None else leaf, wide | more)


def _slope(name: str, a: Mapping[str, Any]) -> Any:
    leaf = _wide(a["self"]).requires_grad_()
    _loss(name, a, leaf).backward(_wide(a["gradOutput"]))
    return leaf.grad


def _power(base: Any, exponent: Any) -> Any:
    return torch.pow(
        *(
            x if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()) else _precise(x)
            for x in (base, exponent)
        )
    )


def _precise_number(values: Any) -> Any:
    return _precise(values) if values.is_floating_point() or values.is_complex() else values


def _scattered(values: Any, index: Any, source: Any, adds: bool) -> Any:
    """Of indices that occur once."""
    if not adds:
        return values.scatter(-1, index, source)
    more = torch.zeros_like(values).scatter(-1, index, source)
    return values | more if values.dtype == torch.bool else values + more


def _clamped(a: Mapping[str, Any]) -> Any:
    """The lower bound wins."""
    values, low, high = _first(a), a.get("clipValueMin"), a.get("clipValueMax")
    values = values if high is None else torch.clamp(values, max=high)
    return values if low is None else torch.clamp(values, min=low)


def _wides(tensors: Any) -> Any:
    return [*map(_wide, tensors)]


def _lerp(start: Any, end: Any, weight: Any) -> Any:
    return torch.lerp(_wide(start), _wide(end), _wide(weight) if isinstance(weight, torch.Tensor) else weight)


def _places(indices: Any) -> Any:
    """The place in its window of 3 × 2 of each maximum, from its index in the plane of 5 × 4."""
    rows, columns = indices // 4, indices % 4
    return (rows - (2 * torch.arange(3)[:, None] - 1)) * 2 + (columns - 2 * torch.arange(2)) // 2


def _masked_maxima(a: Mapping[str, Any]) -> Any:
    y, indices = REFERENCES["max_pool2d_with_indices"](a)
    mask = torch.zeros(8, 384)
    mask[:, :12:2] = _places(indices).reshape(8, 6).float()
    return y, mask.reshape(2, 4, 6, 64)


def _unmasked(a: Mapping[str, Any]) -> Any:
    """The gradient of the third element of each window, to which ``place`` lets the mask point."""
    total = torch.zeros(IMAGES, dtype=torch.float64)
    total[:, :, ::2, ::2] = _wide(a["gradOutput"])
    return total


def _adam(a: Mapping[str, Any]) -> Any:
    """A step of PyTorch's own optimiser from that state, on the negative gradient."""
    state = [_wide(a[name]) for name in ("varRef", "mRef", "vRef", "maxGradNormOptionalRef")]
    torch.optim._functional.adamw(
        *([tensor] for tensor in (state[0], _wide(a["grad"]), *state[1:], a["step"].float().reshape(()))),
        foreach=False, amsgrad=True, beta1=0.75, beta2=0.5, lr=0.125, weight_decay=0.25, eps=0.0625, maximize=True,
    )  # fmt: skip
    return tuple(state)


def _mean(values: Any) -> Any:
    if values.is_floating_point() or values.is_complex():
        return values.mean(0, keepdim=True)
    return torch.div(values.sum(0, keepdim=True, dtype=values.dtype), values.shape[0], rounding_mode="floor")


def valid(operator: Operator, dtype: D) -> Arguments:
    common: Arguments = {}
    for parameter in operator.parameters:
        common[parameter.name] = number_of(dtype) if parameter.kind is Kind.SCALAR else T(dtype, GRID)
    return common | SPECIAL.get(operator.name, lambda d: {})(dtype)


def dtypes_of(operator: Operator) -> tuple[D, ...]:
    return DTYPES.get(operator.name, ALL)


def described(arguments: Arguments) -> dict[str, Any]:
    return {name: _described(value) for name, value in arguments.items()}


def _described(value: Any) -> Any:
    if isinstance(value, T):
        return Tensor(value.dtype, value.shape, format=value.format)
    return tuple(map(_described, value)) if type(value) is tuple else value


#: Indices, by operator and argument, with how many there are.
INDICES = {
    ("nll_loss", "target"): 3,
    ("nll_loss_backward", "target"): 3,
    ("nll_loss2d", "target"): 4,
    ("nll_loss2d_backward", "target"): 4,
    ("embedding", "indices"): 2,
    ("index", "indices"): 4,
    ("index_put_impl", "indices"): 2,
    ("index_add", "index"): 2,
    **{(name, "index"): 3 for name in ("index_select", "gather")},
    ("embedding_dense_backward", "indices"): 2,
    ("max_pool2d_with_indices_backward", "indices"): 20,
}
#: What is of one sign.
NOT_NEGATIVE = {"vRef", "maxGradNormOptionalRef", "step"}


# What breaks a check, by its title: from the operator, a valid call and an argument that the check names.


class Break(NamedTuple):
    change: Mapping[str, Any]
    expected: str
    dtype: D | None = None
    """Of the valid call; None for any."""
    product: Product = Product.ATLAS_A2


def _tensors(operator: Operator) -> list[str]:
    return [p.name for p in operator.parameters if p.is_tensor]


def _of_type(operator: Operator, name: str, new: D) -> Mapping[str, Any]:
    kind = operator.parameter(name).kind
    if kind is Kind.DTYPE:
        return {name: new}
    return {name: Scalar(new, bytes(16))} if kind is Kind.SCALAR else dtype(new, name)


BREAKS: Mapping[str, Callable[[Operator, str], Break]] = {
    "present": lambda o, name: Break({name: None}, "an object"),
    "data type": lambda o, name: Break(
        dtype(D.STRING, "self", "out")
        if "same data type as self: out" in [check.name for check in o.checks[:2]]
        else dtype(D.STRING, *(each for each in _tensors(o) if each != "target"))
        if o.name.startswith("nll") and name == "self"
        else _of_type(o, name, D.STRING),
        "data type",
    ),
    "data type dtype": lambda o, name: Break(
        dtype(D.FLOAT16 if o.name == "linalg_vector_norm" else D.DOUBLE, name), "ACL_FLOAT"
    ),
    "data type ACL_BOOL": lambda o, name: Break(dtype(D.UINT8, name), "ACL_BOOL"),
    "data type of the absolute value": lambda o, name: Break(dtype(D.COMPLEX64, "self", name), "ACL_FLOAT"),
    "same data type as self": lambda o, name: Break(
        dtype(D.FLOAT16 if o.name.startswith(("nll", "ler")) else D.DOUBLE, name),
        "ACL_INT32" if o.name == "bitwise_not" else "ACL_FLOAT",
    ),
    "promotable": lambda o, name: _unpromotable(o, name),
    "converts to the result's data type": lambda o, name: Break(
        {name: scalar(D.FLOAT, 1)}, "converts to ACL_INT32", D.INT32
    ),
    "converts to dtype": lambda o, name: Break({"dtype": D.INT32}, "converts to ACL_INT32"),
    "holds the result": lambda o, name: _too_narrow(o, name),
    "at most 8 dimensions": lambda o, name: Break(_nine(o, name), "at most 8 dimensions"),
    "same shape as self": lambda o, name: Break(
        shape((5,) if o.name == "dot" else (3, 2), name), f"shape {[*valid(o, D.FLOAT)['self'].shape]}"
    ),
    "broadcasts with self": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcasts with selfRef": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of self and other": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "broadcast shape of selfRef and other": lambda o, name: Break(shape((4, 2, 3), "other"), "shape [4, 2, 3]"),
    "broadcast shape of selfRef and src": lambda o, name: Break(shape((4, 2, 3), "src"), "shape [4, 2, 3]"),
    "no private format": lambda o, name: Break(
        {each: {"format": Format.FORMAT_FRACTAL_NZ} for each in ((name, "out") if o.name == "abs" else (name,))},
        "ACL_FORMAT_ND",
    ),
    "same format as self": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "format ACL_FORMAT_ND"),
    "dimensions of self, each once": lambda o, name: Break({name: (1, -1)}, "each dimension once"),
    "reduced shape": lambda o, name: Break(shape((3, 2), name), "shape ["),
    "one element": lambda o, name: Break(shape((2,), name), "one element"),
    "no null among them": lambda o, name: Break({name: (*valid(o, D.FLOAT)[name][:1], None)}, "an object"),
    "data type of each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.STRING, GRID))}, "data type"),
    "promotable to one": lambda o, name: Break(
        {name: (T(D.INT32, GRID), T(D.UINT16, GRID))}
        if o.name == "stack"
        else {name: (T(D.DOUBLE, GRID), T(D.COMPLEX64, GRID))},
        "promote to one",
    ),
    "one public format": lambda o, name: Break(
        {"out": {"format": Format.FORMAT_NCHW}}
        if name == "out"
        else {name: (T(D.FLOAT, GRID, Format.FORMAT_FRACTAL_NZ),)},
        "format ACL_FORMAT_ND" if name == "out" else "ACL_FORMAT_ND",
    ),
    "at most 8 dimensions each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, NINE))}, "at most 8"),
    "dimension of the tensors": lambda o, name: Break({name: 2}, "one of the 2 dimensions"),
    "same shape but for dim": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (3, 3)))}, "shape [2, 3]"),
    "shape of the tensors together": lambda o, name: Break(
        shape((2, 4), name), "shape [2, 2, 3]" if o.name == "stack" else "shape [2, 3]"
    ),
    "size of self and mask": lambda o, name: Break(shape((5,), name), "shape [6]"),
    "same data type as selfRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as gradOutput": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as weight": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as varRef": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same shape as varRef": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "broadcast shape of selfRef and mask": lambda o, name: Break(shape((4, 2, 3), "mask"), "shape [4, 2, 3]"),
    "promotable to one that is taken": lambda o, name: Break(
        dtype(D.INT8, _tensors(o)[0], "tensor1") | dtype(D.UINT8, name), f"{o.function} takes"
    ),
    "broadcast to selfRef": lambda o, name: Break(shape((4, 2, 3), name), "[2, 3]"),
    "broadcast to out": lambda o, name: Break(shape((4, 2, 3), name), "[2, 3]"),
    "broadcasts with gradOutput": lambda o, name: Break(shape((4, 3), name), "broadcasts with"),
    "broadcast shape of gradOutput and output": lambda o, name: Break(shape((4, 2, 3), name), "shape [2, 3]"),
    "same shape as exponent": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "tensors of indices": lambda o, name: Break({name: (T(D.FLOAT, (2,)),)}, "ACL_INT32"),
    "shape of the selection": lambda o, name: Break(shape((2, 3, 2, 5), name), "shape [2, 3, 2, 4]"),
    "one dimension": lambda o, name: Break(shape((2, 2), name), "at most 1"),
    "shape is the result": lambda o, name: Break(shape((7, 7), name), "the result"),
    "shape is a row for each index": lambda o, name: Break(shape((2, 2), name), "a row for each"),
    "within self": lambda o, name: Break(shape((3, 3), name), "within [2, 3]"),
    "within selfRef": lambda o, name: Break(shape((3, 3), name), "within [2, 3]"),
    "same shape as index": lambda o, name: Break(shape((3, 2), name), "shape [2, 5]"),
    "elements along dim": lambda o, name: Break({name: 4}, "from 0 to 3"),
    "room for all": lambda o, name: Break(shape((5, 2), name), "[2, 6]" if "v2" in o.name else "[6, 2]"),
    "dimensions of self": lambda o, name: Break({name: (2, 0)}, "from -2 to 1"),
    "one for each of dims": lambda o, name: Break({name: (1,)}, "expected 2"),
    "one for each dimension": lambda o, name: Break({name: (2,)}, "at least 2"),
    "pairs, no more than dimensions": lambda o, name: Break({name: (1,)}, "even number"),
    "fits self": lambda o, name: Break({name: (1,)}, "numbers"),
    "broadcast shape of self and exponent": lambda o, name: Break(shape((2, 1), name), "shape [2, 3]"),
    "at least 0 for integers": lambda o, name: Break({name: scalar(D.INT64, -1)}, "at least 0", D.INT32),
    "real number": lambda o, name: Break({name: scalar(D.COMPLEX64, 1j)}, "real number"),
    "a bound": lambda o, name: Break({"clipValueMin": None, "clipValueMax": None}, "an object"),
    "at least 2 dimensions": lambda o, name: Break(shape((3,), *_tensors(o)), "at least 2"),
    "dimension of self": lambda o, name: Break({name: 2}, "from -2 to 1"),
    "dimension": lambda o, name: Break({name: scalar(D.INT64, 2) if name == "axis" else 2}, "from -2 to 1"),
    "same shape as input": lambda o, name: Break(shape((3, 2), name), "shape [2, 3]"),
    "dimension of selfRef": lambda o, name: Break({name: 2}, "from -2 to 1"),
    "FLOAT or that of self": lambda o, name: Break({name: D.BF16} | dtype(D.BF16, "out"), "ACL_FLOAT"),
    "from start to end": lambda o, name: Break({name: scalar(D.INT64, 1)}, "from 7 to -2"),
    "as many as there are": lambda o, name: Break(shape((4,), name), "shape [3]"),
    "from 0 to 1": lambda o, name: Break(
        {name: scalar(D.DOUBLE, 1.5) if o.name == "inplace_bernoulli" else 1.5}, "from 0 to 1"
    ),
    "a bit for each element": lambda o, name: Break(shape((15,), name), "elements"),
    "known order": lambda o, name: Break({name: scalar(D.FLOAT, 4)}, "2, 3"),
    "some": lambda o, name: Break({name: ()}, "at least one"),
    "dimension of out": lambda o, name: Break({name: 3}, "from -3 to 2"),
    "same shape": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (3, 3)))}, "shape [2, 3]"),
    "2 dimensions": lambda o, name: Break(shape((1, 3, 4), name), "2 dimensions"),
    "3 dimensions": lambda o, name: Break(shape(GRID, name), "3 dimensions"),
    "allowed value": lambda o, name: Break({name: 5}, "0, 1 or 2" if name in ("mode", "reduce") else "0, 1, 2, 3 or 4"),
    "keeps the data type": lambda o, name: Break({"cubeMathType": 0} | dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as many rows as self has columns": lambda o, name: Break(
        shape({"batch_mat_mul": (1, 5, 4), "mv": (5,)}.get(o.name, (5, 4)), name), "3 rows"
    ),
    "as many rows as batch1 has columns": lambda o, name: Break(shape((5, 5, 4), name), "3 rows"),
    "as many matrices as batch1": lambda o, name: Break(shape((4, 3, 4), name), "5 matrices"),
    "broadcasts to the products": lambda o, name: Break(shape((3, 4), name), "[5, 2, 4]"),
    "1 dimensions": lambda o, name: Break(shape((2, 2), name), "1 dimensions"),
    "0 dimensions": lambda o, name: Break(shape((1,), name), "0 dimensions"),
    "at least 0": lambda o, name: Break({name: -1.0}, "at least 0"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "less than high": lambda o, name: Break({name: 4}, "less than high"),
    "at most high": lambda o, name: Break({name: 3.0}, "at most high"),
    "as many as n": lambda o, name: Break(shape((2,), name), "shape [1]"),
    "as many as steps": lambda o, name: Break(shape((4,), name), "shape [8]"),
    "n by m": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
    "no shape of noise": lambda o, name: Break({name: T(D.INT64, (2,))}, "null"),
    "same data type as input": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as currentScale": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as many rows as mat1 has columns": lambda o, name: Break(shape((5, 4), name), "3 rows"),
    "shape of the product": lambda o, name: Break(shape((2, 5), name), "shape [2]" if o.name == "mv" else "2, 4]"),
    "1 to 6 dimensions": lambda o, name: Break(shape((1,) * 7 if name == "self" else (), name), "1 to 6"),
    "leading dimensions that broadcast": lambda o, name: Break(shape((3, 3, 4), name), "[5]"),
    "as many matrices as self": lambda o, name: Break(shape((3, 3, 4), name), "5 matrices"),
    "broadcasts to the product": lambda o, name: Break(shape((3, 4), name), "[2, 4]"),
    "exact accumulation": lambda o, name: Break({name: 4}, "less than 4", product=Product.ATLAS_TRAINING),
    "0, 1 or 2": lambda o, name: Break({name: 3}, "0, 1 or 2"),
    "0, 1, 2 or 3": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "pixels and classes": lambda o, name: Break(shape((2, 1, 3), name), "expected"),
    "one element, or one a pixel": lambda o, name: Break(shape((2,), name), "shape []"),
    "samples and classes": lambda o, name: Break(shape((2, 1, 3), name), "expected"),
    "one element, or one a sample": lambda o, name: Break(shape((2,), name), "one element"),
    "classes": lambda o, name: Break(shape((2, 0), name) | shape((0,), "weight"), "classes"),
    "shape of the loss": lambda o, name: Break(shape((1,), name), "shape []"),
    "broadcast shape of all": lambda o, name: Break(shape((1, 2, 3), name), "shape [2, 3]"),
    "a row of weight for each index": lambda o, name: Break(shape((4, 4), name), "shape [4, 3]"),
    "as many as rows of grad": lambda o, name: Break(shape((5,), name), "4 of them"),
    "rows of the table": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
    "as many as in x": lambda o, name: Break({name: valid(o, D.FLOAT)[name][:1]}, "2 elements"),
    "as many as in x1": lambda o, name: Break({name: (T(D.FLOAT, GRID),)}, "2 elements"),
    "one data type": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT16, (4,)))}, "ACL_FLOAT"),
    "same shape each": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (5,)))}, "shape [4]"),
    "one element each": lambda o, name: Break({name: (T(D.FLOAT, ()), T(D.FLOAT, (2,)))}, "one element"),
    "at most 50 tensors": lambda o, name: Break(
        {p.name: valid(o, D.FLOAT)[p.name][:1] * 51 for p in o.parameters if p.kind in (*LISTS, Kind.SCALAR_LIST)},
        "at most 50",
        product=Product.ASCEND_950,
    ),
    "as varRef, with amsgrad": lambda o, name: Break({name: None}, "an object with amsgrad"),
    "3 to 5 dimensions": lambda o, name: Break(shape((2, 4), name), "3 to 5" if name == "input" else "4 dimensions"),
    "as many as dimensions": lambda o, name: Break({name: (1, 1, 1)}, "2"),
    "at least": lambda o, name: Break({name: (-1, 1)}, "of at least"),
    "channels": lambda o, name: Break(
        {"groups": 0} if name == "groups" else shape((2, 3, 5, 4) if name == "input" else (5, 2, 3, 2), name),
        {"groups": "at least 1", "input": "4 channels", "weight": "a multiple of 2"}[name],
    ),
    "shape of the convolution": lambda o, name: Break(shape((2, 6, 2, 4), name), "[2, 6, 2, 5]"),
    "one a channel": lambda o, name: Break(shape((4,), name), "[6]"),
    "0 to 3": lambda o, name: Break({name: 4}, "0, 1, 2 or 3"),
    "three values": lambda o, name: Break({name: (True, True)}, "3 values"),
    "wanted": lambda o, name: Break(
        {name: None} if name == "gradBias" else shape((2, 4, 5, 5), name), "a tensor" if name == "gradBias" else "shape"
    ),
    "3 or 4 dimensions": lambda o, name: Break(shape((5, 4), name), "(C, H, W)"),
    "sizes of windows": lambda o, name: Break(
        {name: (2, 2) if name == "padding" else (2, 2, 2)}, "at most half" if name == "padding" else "1 or 2 numbers"
    ),
    "shape of the windows": lambda o, name: Break(shape((2, 4, 3, 4), name), "[2, 4, 3, "),
    "room for the mask": lambda o, name: Break(shape((2, 4, 6, 32), name), "[2, 4, 6, 64]"),
    "the plane that is wanted": lambda o, name: Break(
        {name: (3,)} if name == "outputSize" else shape((2, 4, 3, 3), name),
        "2 numbers" if name == "outputSize" else "[2, 4, 3, 2]",
    ),
    "the planes of self": lambda o, name: Break(shape((2, 3, 3, 2), name), "[2, 4]"),
}


#: Where they are not "parameter invalid".
CODES = dict.fromkeys(("present", "no null among them", "a bound"), NULL)


def _unpromotable(operator: Operator, name: str) -> Break:
    if operator.name == "eq_tensor":
        return Break(dtype(D.UINT64, name), "promotes with", product=Product.ASCEND_950)
    if operator.parameter(name).kind is Kind.SCALAR and D.STRING not in operator.support[Product.ATLAS_A2]:
        listed = any(check.name.startswith("data type") and name in check.name for check in operator.checks)
        return Break(_of_type(operator, name, D.UINT16 if listed else D.HIFLOAT8), "promotes with", D.INT32)
    return Break(_of_type(operator, name, D.UINT16), "promotes with", D.INT32)


def _too_narrow(operator: Operator, name: str) -> Break:
    if operator.name in ("inplace_addcmul", "inplace_addcdiv"):
        return Break(dtype(D.FLOAT, "tensor1"), "ACL_FLOAT", D.INT64)
    if operator.name.startswith(("inplace_pow", "inplace_clamp", "inplace_hardtanh")):
        second = operator.parameters[1]
        change = {second.name: scalar(D.FLOAT, 1)} if second.kind is Kind.SCALAR else dtype(D.FLOAT, second.name)
        return Break(change, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    if operator.name.startswith("bitwise"):
        return Break(dtype(D.BOOL, name), "ACL_INT", D.INT32)
    if operator.name == "mean":
        return Break(dtype(D.INT32, name), "ACL_FLOAT")
    if name != "selfRef":
        product = Product.ASCEND_950 if operator.name == "muls" else Product.ATLAS_A2
        return Break(dtype(D.INT32, name), "ACL_FLOAT", D.FLOAT, product)
    if operator.name == "inplace_divs":
        return Break({}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    if operator.parameter("other").kind is Kind.SCALAR:
        return Break({"other": scalar(D.FLOAT, 1)}, "ACL_FLOAT", D.INT32, Product.ASCEND_950)
    return Break(dtype(D.FLOAT, "other"), "ACL_FLOAT", D.INT32)


def _nine(operator: Operator, name: str) -> Mapping[str, Any]:
    # Where the shapes are compared before, all have as many.
    titles = [check.name for check in operator.checks]
    before = titles[: next(at for at, title in enumerate(titles) if title.startswith("at most 8"))]
    compared = any(title.startswith(("same shape", "broadcasts")) for title in before)
    return shape(NINE, *(_tensors(operator) if compared else [name]))


def rows() -> Iterator[Any]:
    for operator in LIBRARY_OPERATORS:
        for check in operator.checks:
            title, _, listed = check.name.partition(": ")
            names = [name for name in listed.partition(" (")[0].split(", ") if name]
            if title == "promotable":
                names = names[1:]
            if check.name.startswith("at most 8") and operator.name in ("inplace_add", "inplace_sub"):
                names = names[:1]
            for name in names:
                yield pytest.param(operator, check, title, name, id=f"{operator.name}-{title}-{name}")


@pytest.mark.parametrize(("operator", "check", "title", "name"), [*rows()])
def test_every_check_refuses(operator: Operator, check: Any, title: str, name: str) -> None:
    broken = BREAKS[title](operator, name)
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    arguments = described(changed(valid(operator, broken.dtype or default), broken.change))
    call = Call(operator, arguments, broken.product)
    first = next(each for each in operator.checks if each.complaint(call) is not None)
    assert first is check
    with pytest.raises(AclnnError) as caught:
        prepare(operator, arguments, broken.product)
    function, argument, text = caught.value.message.split(": ", 2)
    expected, got = text.rsplit(", got ", 1)
    # The documents of lists leave shapes, and that their data types are one, to the tiling function.
    is_tiling = operator in map(BY_NAME.get, FOREACH) and title not in ("data type", "data type of each", "real number")
    code = CODES.get(title, ACLNN_ERR_INNER_TILING_ERROR if is_tiling else INVALID)
    assert (caught.value.code, function) == (code, operator.function)
    # A relation is told of one of the arguments.
    assert argument.partition("[")[0] == name or title in ("converts to dtype", "data type")
    assert expected.startswith("expected ")
    assert broken.expected in expected
    assert got


@every_operator
def test_products_without_a_kernel_refuse_after_all_checks(operator: Operator) -> None:
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    for product in PRODUCTS:
        arguments = described(valid(operator, default))
        if product in operator.support:
            prepare(operator, arguments, product)
            continue
        with pytest.raises(AclnnError, match="product with a kernel") as caught:
            prepare(operator, arguments, product)
        assert caught.value.code == NO_KERNEL
        required = operator.checks[0].name.removeprefix("present: ").split(", ")[0]
        with pytest.raises(AclnnError, match="got null"):
            prepare(operator, arguments | {required: None}, product)


@every_operator
def test_bfloat16_is_refused_where_the_product_lacks_it(operator: Operator) -> None:
    for product in set(operator.support) - set(MODERN):
        if D.BF16 in dtypes_of(operator):
            with pytest.raises(AclnnError) as caught:
                prepare(operator, described(valid(operator, D.BF16)), product)
            assert caught.value.code == INVALID


def values(dtype: D, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray[Any, Any]:
    if dtype == D.BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if dtype in INTEGERS:
        return random.integers(1 if dtype == D.UINT8 else -9, 10, shape).astype(dtype.numpy)
    found = random.normal(size=shape) * 3
    if dtype in COMPLEX:
        found = found + 1j * random.normal(size=shape)
    return found.astype(dtype.numpy)


def to_torch(array: np.ndarray[Any, Any]) -> Any:
    array = np.array(array, order="C")
    if array.dtype == D.BF16.numpy:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


class Placed:
    """A view in the middle of memory whose other bytes must stay: strides forwards, backwards, with holes."""

    def __init__(self, array: np.ndarray[Any, Any], layout: str) -> None:
        shape, itemsize = array.shape, array.dtype.itemsize
        self.memory = np.full(array.size * 4 * itemsize + 64 * itemsize, 0xA5, np.uint8)
        flat = self.memory.view(array.dtype)[16:]
        if layout == "contiguous" or not shape:
            self.view = flat[: array.size].reshape(shape)
        elif layout == "transposed":
            self.view = flat[: array.size].reshape(shape[::-1]).T
        else:
            self.view = flat[: array.size * 2].reshape(*shape[:-1], -1)[..., ::-2]
        self.view[...] = array
        self.tensor = Tensor(
            D.of_numpy(array.dtype),
            shape,
            [stride // itemsize for stride in self.view.strides],
            address=self.view.__array_interface__["data"][0],
            owner=self.memory,
        )
        self._outside = np.ones(self.memory.size, bool)
        at = self.tensor.address - self.memory.ctypes.data
        for index in itertools.product(*map(range, shape)):
            begin = at + sum(i * s for i, s in zip(index, self.view.strides, strict=True))
            self._outside[begin : begin + itemsize] = False
        self._before = self.memory.copy()

    def untouched_outside(self) -> bool:
        return bool((self.memory == self._before)[self._outside].all())


def place(operator: Operator, name: str, value: T, layout: str, random: np.random.Generator) -> Placed:
    """Values for an argument, in memory."""
    array = values(value.dtype, value.shape, random)
    if name == "other" and operator.name in ("add", "mul", "maximum", *BITWISE, *COMPARISONS):
        array = array[:1]  # broadcast
    if name == "other" and operator.name in DIVIDING:
        array = array + (array == 0)
    if (operator.name.removesuffix("_backward"), name) in PROBABILITIES:
        array = (np.abs(np.sin(array.astype(np.float64))) * 0.9 + 0.05).astype(array.dtype)
    if name == "weight" and "lerp" in operator.name:
        array = np.abs(array) % 1
    if (operator.name, name) in INDICES:
        array = array % INDICES[operator.name, name]
    if name == "index" and "scatter" in operator.name:
        array = np.array([[2, 0, 1]], array.dtype)
    if (operator.name, name) == ("max_pool2d_with_mask_backward", "indices"):
        array = np.tile(np.array([2, 0], np.int8), array.size // 2).reshape(array.shape)
    if value.dtype not in COMPLEX and (
        name in NOT_NEGATIVE or operator.name.endswith(("sqrt", "log", "log2", "log10", "log1p"))
    ):
        array = np.abs(array)
    is_plain = operator.name in ("masked_select", "nonzero", "nonzero_v2") or (
        operator.name == "cat" and array.ndim == 1
    )
    return Placed(array, "contiguous" if is_plain else layout)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "reversed with holes"])
@every_operator
def test_values_are_pytorchs(operator: Operator, layout: str) -> None:
    random = np.random.default_rng(7)
    for d in dtypes_of(operator):
        placed: dict[str, Placed] = {}
        arguments, expected_of = {}, {}
        for name, value in valid(operator, d).items():
            if isinstance(value, T):
                placed[name] = place(operator, name, value, layout, random)
                arguments[name], expected_of[name] = placed[name].tensor, to_torch(placed[name].view)
            elif type(value) is tuple and any(isinstance(each, T) for each in value):
                listed = [each and place(operator, name, each, layout, random) for each in value]
                placed |= {f"{name}[{at}]": each for at, each in enumerate(listed) if each}
                arguments[name] = tuple(each and each.tensor for each in listed)
                expected_of[name] = [each and to_torch(each.view) for each in listed]
            else:
                arguments[name] = value
                expected_of[name] = value.value.item() if isinstance(value, Scalar) else value
        expected = REFERENCES[operator.name](expected_of)
        run(prepare(operator, arguments, Product.ATLAS_A2))
        (output,) = [p for p in operator.parameters if p.kind is Kind.OUTPUT_LIST] or [operator.outputs[0]]
        outs = (
            [f"{output.name}[{at}]" for at in range(len(arguments[output.name]))]
            if output.kind is Kind.OUTPUT_LIST
            else [p.name for p in operator.outputs]
        )
        # One rounding of each; PyTorch fuses some products and sums of float32, and rounds alpha to the type before.
        unit = {D.FLOAT: 2.0**-22, D.FLOAT16: 2.0**-9, D.BF16: 2.0**-6, D.COMPLEX64: 2.0**-20}
        divides = "div" in operator.name or operator.name in (*ELEMENTARY, "reciprocal", "log_sum_exp")
        tolerance = unit.get(d, 2.0**-22 if divides and d in (*INTEGERS, D.BOOL) else 2.0**-50)
        tolerance = tolerance if d in (*FLOATING, *COMPLEX) or divides else 0
        tolerance *= 8 if d == D.FLOAT and operator.name.startswith("convolution") else 1  # sums of up to 60, to 100
        for name, result in zip(outs, expected if isinstance(expected, (tuple, list)) else [expected], strict=True):
            out = placed[name]
            # A selection takes the first part of its memory.
            got = out.view if out.tensor.shape == out.view.shape else out.view.flatten()[: math.prod(out.tensor.shape)]
            wanted = result.to(torch.complex128 if result.is_complex() else torch.float64).numpy()
            np.testing.assert_allclose(
                got.astype(wanted.dtype).reshape(wanted.shape),
                wanted,
                rtol=tolerance,
                atol=4 * tolerance,
                err_msg=d.c_name,
            )
        assert all(each.untouched_outside() for each in placed.values()), d


#: Empty calls that are not of tensors of shape (0, 3).
EMPTY: Mapping[str, Mapping[str, Any]] = {
    "dropout_v3": {"optionalNoiseShape": None, "maskOut": {"shape": (0,)}},
    "randperm": {"n": 0, "out": {"shape": (0,)}},
    "inplace_fill_tensor": {"value": {"shape": (1,)}},
    "linspace": {"steps": 0, "out": {"shape": (0,)}},
    "eye": {"n": 0},
    "baddbmm": {
        "self": {"shape": (4,)},
        "batch1": {"shape": (0, 2, 3)},
        "batch2": {"shape": (0, 3, 4)},
        "out": {"shape": (0, 2, 4)},
    },
    "mv": {"vec": {"shape": (3,)}, "out": {"shape": (0,)}},
    "dot": {"self": {"shape": (0,)}, "tensor": {"shape": (0,)}, "out": {"shape": ()}},
    "amp_update_scale": {
        name: {"shape": (1,)}
        for name in ("currentScale", "growthTracker", "foundInf", "updatedScale", "updatedGrowthTracker")
    },
    "equal": {"out": {"shape": ()}},
    "index": {"self": {"shape": (0, *IMAGES[1:])}, "out": {"shape": (0, 3, 2, 4)}},
    "index_select": {"index": {"shape": (4,)}, "out": {"shape": (0, 4)}},
    "index_add": {"index": {"shape": (0,)}},
    "topk": {"valuesOut": {"shape": (0, 2)}, "indicesOut": {"shape": (0, 2)}},
    "nonzero": {"out": {"shape": (0, 2)}},
    "nonzero_v2": {"out": {"shape": (2, 0)}},
    "repeat": {"out": {"shape": (2, 0, 6)}},
    "repeat_interleave_int_with_dim": {"out": {"shape": (0, 6)}},
    "constant_pad_nd": {"out": {"shape": (1, 4)}},
    **{
        name: {
            p.name: {"shape": (0, *valid(BY_NAME[name], D.FLOAT)[p.name].shape[1:])}
            for p in BY_NAME[name].parameters
            if p.is_tensor
        }
        for name in BY_NAME
        if "_pad" in name and "constant" not in name
    },
    "inplace_masked_fill_tensor": {"value": {"shape": ()}},
    "stack": {"tensors": (T(D.FLOAT, (0, 3)),), "out": {"shape": (0, 1, 3)}},
    **{
        name: {each: {"shape": (0,)} for each in [p.name for p in BY_NAME[name].parameters if p.kind is Kind.OUTPUT]}
        for name in ("arg_max", "arg_min", "amax", "amin", "max_dim", "min_dim", "norm", *SPREADS)
    },
    **{name: {"out": {"shape": (1, 3)}} for name in ("any", "all")},
    "log_sum_exp": {"out": {"shape": (0, 1)}},
    "prod": {"out": {"shape": ()}},
    "prod_dim": {"out": {"shape": (3,)}},
    "linalg_vector_norm": {"out": {"shape": (0, 1)}},
    "mm": {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    "matmul": {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    "batch_mat_mul": {"self": {"shape": (0, 2, 3)}, "mat2": {"shape": (0, 3, 4)}, "out": {"shape": (0, 2, 4)}},
    "addmm": {"self": {"shape": (4,)}, "mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    "nll_loss": {
        "target": {"shape": (0,)},
        "weight": {"shape": (3,)},
        "reduction": 0,
        "out": {"shape": (0,)},
        "totalWeightOut": {"shape": ()},
    },
    "nll_loss_backward": {
        "target": {"shape": (0,)},
        "weight": {"shape": (3,)},
        "gradOutput": {"shape": ()},
        "totalWeight": {"shape": ()},
    },
    **{name: {"reduction": 0} for name in PAIRWISE},
    **{
        name: {
            "self": {"shape": (0, 4, 5, 4)},
            "target": {"shape": (0, 5, 4)},
            "weight": {"shape": (4,)},
            "reduction": 0,
            "out": {"shape": (0, 5, 4) if name == "nll_loss2d" else (0, 4, 5, 4)},
            "totalWeight": {"shape": ()},
        }
        | ({"gradOutput": {"shape": (0, 5, 4)}} if name.endswith("backward") else {})
        for name in ("nll_loss2d", "nll_loss2d_backward")
    },
    "dropout_gen_mask_v2": {"shape": (0, 3), "out": {"shape": (0,)}},
    "dropout_do_mask": {"mask": {"shape": (0,)}},
    "arange": {"end": scalar(D.INT64, 7), "out": {"shape": (0,)}},
    "embedding": {"indices": {"shape": (0,)}, "out": {"shape": (0, 3)}},
    "embedding_dense_backward": {"indices": {"shape": (0,)}, "numWeights": 0},
    "apply_adam_w_v2": {"step": {"shape": (1,)}},
    "convolution": {
        "input": {"shape": (0, *IMAGES[1:])},
        "output": {"shape": (0, *FOUND[1:])},
        "weight": {"shape": KERNELS},
        "bias": {"shape": (6,)},
    },
    "convolution_backward": {
        "gradOutput": {"shape": (0, *FOUND[1:])},
        "input": {"shape": (0, *IMAGES[1:])},
        "weight": {"shape": KERNELS},
        "gradInput": {"shape": (0, *IMAGES[1:])},
        "gradWeight": {"shape": KERNELS},
        "gradBias": {"shape": (6,)},
    },
    **{
        name: {
            p.name: {"shape": (0, *valid(BY_NAME[name], D.FLOAT)[p.name].shape[1:])}
            for p in BY_NAME[name].parameters
            if p.is_tensor
        }
        for name in BY_NAME
        if "pool" in name
    },
    **{name: {p.name: (T(D.FLOAT, (0, 3)),) for p in BY_NAME[name].parameters if p.kind in LISTS} for name in FOREACH},
    **{
        name: {p.name: (T(D.FLOAT, (0,)),) for p in BY_NAME[name].parameters if p.kind in LISTS}
        | {"scalars": (scalar(D.FLOAT, 1),)}
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    "foreach_norm": {"x": (), "out": ()},
    "foreach_non_finite_check_and_unscale": {
        "scaledGrads": (T(D.FLOAT, (0, 3)),),
        "foundInf": {"shape": (1,)},
        "inScale": {"shape": (1,)},
    },
}


@every_operator
def test_empty_tensors_are_nothing_to_do(operator: Operator) -> None:
    empty = {name: {"shape": (0, 3)} for name in _tensors(operator)}
    if operator.name == "cat":
        empty["tensors"] = (T(D.FLOAT, (0,)), T(D.FLOAT, (0,)))
    if operator.name == "masked_select":
        empty["out"] = {"shape": (0,)}
    empty |= EMPTY.get(operator.name, {})
    if operator.name in ("reduce_sum", "mean"):
        empty["out"] = {"shape": (3,) if operator.name == "mean" else (0,)}
    default = D.INT32 if D.FLOAT not in dtypes_of(operator) else D.FLOAT
    executor = prepare(operator, described(changed(valid(operator, default), empty)), Product.ATLAS_A2)
    room = np.zeros(1 << 12, np.uint8)
    for tensor in executor.tensors.values():
        tensor.address = room.ctypes.data
    if operator.name != "mean":
        executor.run()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolutions_of_every_rank_with_their_gradients(rank: int, transposed: bool) -> None:
    random = np.random.default_rng(rank)
    stride, pads, dilation = ((2, 1, 2)[:rank], (1, 0, 2)[:rank], (1, 2, 1)[:rank])
    more = (1, 0, 0)[:rank] if transposed else (0,) * rank
    x = random.normal(size=(2, 4, *(7, 6, 5)[:rank])).astype(np.float32)
    w = random.normal(size=(4, 3, *(3, 2, 3)[:rank]) if transposed else (6, 2, *(3, 2, 3)[:rank])).astype(np.float32)
    attributes = (stride, pads, dilation, transposed, more, 2)
    y = torch.ops.aten.convolution(_wide(to_torch(x)), _wide(to_torch(w)), None, *attributes)
    dy = random.normal(size=tuple(y.shape)).astype(np.float32)
    wanted = torch.ops.aten.convolution_backward(
        *(_wide(to_torch(each)) for each in (dy, x, w)), [6], *attributes, (True, True, True)
    )
    given = {name: Placed(array, "transposed") for name, array in (("gradOutput", dy), ("input", x), ("weight", w))}
    outs = {
        name: Placed(np.zeros(tuple(result.shape), np.float32), "contiguous")
        for name, result in zip(("output", "gradInput", "gradWeight", "gradBias"), (y, *wanted), strict=True)
    }
    call = dict(
        zip(("stride", "padding", "dilation", "transposed", "outputPadding", "groups"), attributes, strict=True)
    )
    call |= {name: each.tensor for name, each in {**given, **outs}.items()}
    call |= {"bias": None, "cubeMathType": 0, "biasSizes": (6,), "outputMask": (True, True, True)}
    for operator in ("convolution", "convolution_backward"):
        chosen = {p.name: call[p.name] for p in BY_NAME[operator].parameters}
        prepare(BY_NAME[operator], chosen, Product.ATLAS_A2).run()
    for out, result in zip(outs.values(), (y, *wanted), strict=True):
        np.testing.assert_allclose(out.view, result.numpy(), rtol=1e-5, atol=1e-5)


def test_a_mask_leads_gradients_to_the_maxima() -> None:
    """One window's elements of equal size among them: the first takes the gradient."""
    random = np.random.default_rng(3)
    x = random.integers(0, 5, IMAGES).astype(np.float32)
    dy = random.normal(size=POOLED).astype(np.float32)
    leaf = to_torch(x).requires_grad_()
    y = torch.nn.functional.max_pool2d(leaf, (3, 2), 2, (1, 0), (1, 2), True)
    y.backward(to_torch(dy))
    placed = {name: Placed(array, "contiguous") for name, array in (("self", x), ("gradOutput", dy))}
    placed |= {"out": Placed(np.zeros(POOLED, np.float32), "contiguous")}
    placed |= {"indices": Placed(np.zeros((2, 4, 6, 64), np.int8), "contiguous")}
    placed |= {"gradInput": Placed(np.zeros(IMAGES, np.float32), "contiguous")}
    call = DILATED | {name: each.tensor for name, each in placed.items()}
    for name in ("max_pool2d_with_mask", "max_pool2d_with_mask_backward"):
        prepare(BY_NAME[name], {p.name: call[p.name] for p in BY_NAME[name].parameters}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["out"].view, y.detach().numpy())
    np.testing.assert_allclose(placed["gradInput"].view, leaf.grad.numpy(), rtol=1e-6)


def test_tensors_of_several_types_are_joined_in_the_promoted_one() -> None:
    parts = [Placed(np.array([1, 2], np.int32), "contiguous"), Placed(np.array([0.5], np.float32), "contiguous")]
    out = Placed(np.zeros(3, np.float32), "contiguous")
    arguments = {"tensors": tuple(part.tensor for part in parts), "dim": 0, "out": out.tensor}
    prepare(BY_NAME["cat"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, [1, 2, 0.5])


@pytest.mark.parametrize(("name", "expected"), [("reduce_sum", 0.0), ("mean", math.nan)])
def test_a_reduction_of_nothing_is_written(name: str, expected: float) -> None:
    out = Placed(np.ones((3,), np.float32), "contiguous")
    dims = {"reduce_sum": {"dims": (0,), "keepDims": False}, "mean": {"dim": (0,), "keepDim": False}}[name]
    arguments = {"self": Tensor(D.FLOAT, (0, 3)), **dims, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, np.full(3, expected, np.float32))


def test_numpy_is_not_given_addresses_of_a_gpu() -> None:
    operator = OPERATOR_BY_NAME["gelu_backward"]
    arguments = {p.name: Tensor(D.FLOAT, GRID) for p in operator.parameters} | {"gradOutput": Tensor(D.INT32, GRID)}
    with pytest.raises(AclnnError, match="expected the CPU as the device") as caught:
        prepare_layouts(operator, arguments, Product.ATLAS_A2, device="cuda")
    assert caught.value.code == NO_KERNEL


def test_inputs_that_overlap_the_output_are_read_first() -> None:
    memory = np.arange(9, dtype=np.float32)
    at = memory.__array_interface__["data"][0]
    first = Tensor(D.FLOAT, (8,), address=at, owner=memory)
    second = Tensor(D.FLOAT, (8,), address=at + 4, owner=memory)
    arguments = {"self": first, "other": second, "alpha": scalar(D.FLOAT, 1), "out": second}
    prepare(BY_NAME["add"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(memory, [0, 1, 3, 5, 7, 9, 11, 13, 15])


def test_sums_of_sixteen_bits_are_rounded_once() -> None:
    ones = np.ones((2, 70_000), np.float16)
    tensor = Tensor(D.FLOAT16, ones.shape, address=ones.__array_interface__["data"][0], owner=ones)
    out = Placed(np.zeros(2, np.float32), "contiguous")
    mean = {"self": tensor, "dim": (1,), "keepDim": False, "dtype": D.FLOAT, "out": out.tensor}
    prepare(BY_NAME["mean"], mean, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, 1)


def test_products_of_sixteen_bits_are_not_rounded_before_they_are_added() -> None:
    a, b = np.array([-(1 + 2.0**-9)], np.float16), np.array([1 + 2.0**-10], np.float16)
    tensors = {
        name: Tensor(D.FLOAT16, (1,), address=array.__array_interface__["data"][0], owner=array)
        for name, array in (("self", a), ("other", b))
    }
    out = Placed(np.zeros(1, np.float16), "contiguous")
    alpha = {"alpha": scalar(D.DOUBLE, 1 + 2.0**-10)}
    prepare(BY_NAME["add"], tensors | alpha | {"out": out.tensor}, Product.ATLAS_A2).run()
    assert out.view[0] == 2.0**-20


def test_booleans_and_an_integer_scalar_are_added_as_integers() -> None:
    x, out = np.array([True, False]), Placed(np.zeros(2, np.int64), "contiguous")
    self = Tensor(D.BOOL, (2,), address=x.__array_interface__["data"][0], owner=x)
    scalars = {"other": scalar(D.INT64, 3), "alpha": scalar(D.INT64, 2)}
    for product in (Product.ATLAS_A2, Product.ASCEND_950):
        prepare(BY_NAME["adds"], {"self": self, **scalars, "out": out.tensor}, product).run()
        assert out.view.tolist() == [7, 6]


def test_a_scalar_takes_the_tensors_type_before_it_is_used() -> None:
    """A float16 times 0.1 is a float16 times the float16 nearest to 0.1 on Atlas A2, the float32 on Ascend 950."""
    x = np.array([3.0], np.float16)
    for product, factor in ((Product.ATLAS_A2, np.float16(0.1)), (Product.ASCEND_950, np.float32(0.1))):
        out = Placed(np.zeros(1, np.float32), "contiguous")
        self = Tensor(D.FLOAT16, (1,), address=x.__array_interface__["data"][0], owner=x)
        prepare(BY_NAME["muls"], {"self": self, "other": scalar(D.DOUBLE, 0.1), "out": out.tensor}, product).run()
        exact = np.float32(3) * np.float32(factor)
        assert out.view[0] == (exact if product is Product.ASCEND_950 else np.float32(np.float16(exact)))


@given(
    st.lists(st.one_of(st.floats(width=32), st.sampled_from([2.0**31, -(2.0**31), 2.0**63, -(2.0**63)])), min_size=1),
    st.sampled_from([D.INT8, D.UINT8, D.INT16, D.INT32, D.INT64, D.UINT16, D.UINT32, D.UINT64]),
)
def test_floating_numbers_become_integers_by_truncation_within_the_range(numbers: list[float], target: D) -> None:
    limits = np.iinfo(target.numpy)
    expected = [
        0
        if math.isnan(x)
        else min(max(math.trunc(x) if math.isfinite(x) else math.copysign(2**70, x), limits.min), limits.max)
        for x in numbers
    ]
    got = convert(np.array(numbers, np.float32), target.numpy)
    assert got.dtype == target.numpy
    assert got.tolist() == expected


def test_a_dropout_keeps_as_many_as_its_probability_says() -> None:
    masks = []
    for seed, offset in ((1, 0), (1, 0), (1, 10), (2, 0)):
        out = Placed(np.zeros(12_512, np.uint8), "contiguous")
        arguments = {"shape": (1000, 100), "prob": 0.25, "seed": seed, "offset": offset, "probDataType": D.FLOAT}
        prepare(BY_NAME["dropout_gen_mask_v2"], arguments | {"out": out.tensor}, Product.ATLAS_A2).run()
        masks.append(np.unpackbits(out.view)[:100_000])
        assert abs(masks[-1].mean() - 0.75) < 0.007  # five standard deviations
    assert (masks[0] == masks[1]).all()
    assert abs(np.corrcoef(masks[1:])[~np.eye(3, dtype=bool)]).max() < 0.016


@pytest.mark.parametrize(
    ("name", "attributes", "mean", "deviation"),
    [
        ("inplace_normal", {"mean": 1.0, "std": 2.0}, 1.0, 2.0),
        ("inplace_uniform", {"low": -1.0, "high": 3.0}, 1.0, 4 / math.sqrt(12)),
        ("inplace_bernoulli", {"prob": scalar(D.DOUBLE, 0.25)}, 0.25, math.sqrt(3) / 4),
        ("inplace_random", {"low": -2, "high": 3}, 0.0, math.sqrt(2)),
    ],
)
def test_random_numbers_have_their_distribution(
    name: str, attributes: Mapping[str, Any], mean: float, deviation: float
) -> None:
    drawn = []
    for seed, offset in ((1, 0), (1, 0), (1, 4), (2, 0)):
        out = Placed(np.zeros(100_000, np.float32), "contiguous")
        arguments = {"selfRef": out.tensor, "seed": seed, "offset": offset, **attributes}
        prepare(BY_NAME[name], arguments, Product.ATLAS_A2).run()
        drawn.append(out.view.copy())
        assert abs(drawn[-1].mean() - mean) < 5 * deviation / math.sqrt(100_000)
        assert abs(drawn[-1].std() / deviation - 1) < 0.02
    assert (drawn[0] == drawn[1]).all()
    # Nor does one stream begin later in another.
    assert not np.isin(drawn[0][:3], drawn[2]).all() or name in ("inplace_bernoulli", "inplace_random")
    assert abs(np.corrcoef(drawn[1:])[~np.eye(3, dtype=bool)]).max() < 0.016


def test_a_permutation_has_every_number_once() -> None:
    out = Placed(np.zeros(1000, np.int64), "contiguous")
    prepare(BY_NAME["randperm"], {"n": 1000, "seed": 1, "offset": 0, "out": out.tensor}, Product.ATLAS_A2).run()
    assert sorted(out.view) == [*range(1000)]
    assert (out.view != np.arange(1000)).any()


@pytest.mark.usefixtures("device")
def test_a_selection_tells_its_size_when_phase_two_returns() -> None:
    """Callers look at the view next, without synchronising the stream."""
    from aclnn import cann

    status, stream = cann.aclrtCreateStream()
    n = 100_000
    x, mask = np.arange(n, dtype=np.float32), np.arange(n) % 3 == 0
    handles = []
    for array in (x, mask, np.zeros(n, np.float32)):
        _, memory = cann.aclrtMalloc(array.nbytes, 0)
        assert cann.aclrtMemcpy(memory, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
        number = D.of_numpy(array.dtype)
        handles.append((cann.aclCreateTensor([n], 1, number, None, 0, 2, [n], 1, memory), memory))
    (self, _), (chosen, _), (out, memory) = handles
    status, size, executor = cann.aclnnMaskedSelectGetWorkspaceSize(self, chosen, out)
    assert status == 0
    assert cann.aclnnMaskedSelect(0, size, executor, stream) == 0
    status, dims, rank = cann.aclGetViewShape(out)
    assert (status, dims, rank) == (0, [mask.sum()], 1)
    found = np.zeros(mask.sum(), np.float32)
    assert cann.aclrtMemcpy(found.ctypes.data, found.nbytes, memory, found.nbytes, 2) == 0
    np.testing.assert_array_equal(found, x[mask])
    assert cann.aclrtDestroyStream(stream) == 0


@pytest.mark.usefixtures("device")
def test_an_operator_may_take_lists_and_numbers_of_any_width() -> None:
    """The engine's own promise to operators that are yet to come: lists in and out, int8_t, float, bool."""
    from aclnn import cann

    def work(call: Call) -> Library:
        count = len(call["x"])
        factor = call["factor"] * (-1 if call["negate"] else 1) + call["shift"]
        return Library(
            lambda *tensors: tuple(tensor * factor for tensor in tensors),
            tuple(f"x[{at}]" for at in range(count)),
            tuple(f"y[{at}]" for at in range(count)),
        )

    operator = Operator(
        name="scale_list",
        function="aclnnScaleList",
        summary="Scale.",
        formula="y = x * (+-factor + shift)",
        parameters=(
            Parameter("x", "x", Kind.INPUT_LIST, "tensors"),
            Parameter("factor", "factor", Kind.FLOAT, "factor"),
            Parameter("shift", "shift", Kind.INT8, "shift"),
            Parameter("negate", "negate", Kind.BOOL, "negate"),
            Parameter("y", "y", Kind.OUTPUT_LIST, "results"),
        ),
        support=dict.fromkeys(Product, frozenset({D.FLOAT})),
        checks=(),
        work=work,
    )
    entries._enter_first_phase(operator)
    entries._enter_second_phase(operator)
    try:
        tensors, addresses = [], []
        for rows in (2, 3, 2, 3):
            _, memory = cann.aclrtMalloc(rows * 4, 0)
            ones = np.arange(rows, dtype=np.float32)
            assert cann.aclrtMemcpy(memory, rows * 4, ones.ctypes.data, rows * 4, 1) == 0
            tensors.append(cann.aclCreateTensor([rows], 1, 0, None, 0, 2, [rows], 1, memory))
            addresses.append(memory)
        x, y = cann.aclCreateTensorList(tensors[:2], 2), cann.aclCreateTensorList(tensors[2:], 2)
        status, size, executor = CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, -4, True, y)
        assert status == 0
        assert CALLS["aclnnScaleList"](0, size, executor, None) == 0
        for address, rows in zip(addresses[2:], (2, 3), strict=True):
            found = np.zeros(rows, np.float32)
            assert cann.aclrtMemcpy(found.ctypes.data, rows * 4, address, rows * 4, 2) == 0
            np.testing.assert_array_equal(found, np.arange(rows) * -6.5)
        with pytest.raises(ValueError, match="int8_t"):
            CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, 128, True, y)
    finally:
        for name in ("aclnnScaleList", "aclnnScaleListGetWorkspaceSize"):
            CALLS.pop(name)
            FUNCTIONS.pop(name)
        gc.collect()
