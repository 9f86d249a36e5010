"""aclnnCelu, x above 0 and alpha·(e^(x / alpha) - 1) below, also in place."""

from __future__ import annotations

from aclnn.core.checks import (
    WITH_BFLOAT16,
    WITHOUT_BFLOAT16,
    castable_from,
    dtype_in,
    floating,
    limited_dims,
    on,
    public_format,
    real,
    rule,
    same_shape,
)
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator, Parameter, in_place, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.execution import arrays
from aclnn.formula import Real, expm1, where
from aclnn.operators.elu import unit_elu_forward
from aclnn.typing import Array, ArrayLike, Number


def celu_forward(x: Real, alpha: Real) -> Real:
    """Return x above 0, else alpha·(e^(x / alpha) - 1)."""
    return where(x > 0.0, x, alpha * expm1(x / alpha))


def _not_zero(call: Call) -> str | None:
    alpha = call["alpha"].rounded(DataType.FLOAT)
    given = call["alpha"].value
    return None if alpha > 0 or alpha < 0 else f"alpha: expected a number other than 0 (as float32), got {given}"


def _work(call: Call) -> Elementwise | None:
    if call["self"].size == 0:
        return None
    alpha = call["alpha"].rounded(DataType.FLOAT)
    if alpha == 1.0:
        return Elementwise(unit_elu_forward, ("self",), ("out",))
    return Elementwise(celu_forward, ("self",), ("out",), (alpha,))


_ALPHA = Parameter("alpha", "alpha", Kind.SCALAR, "minus the limit on the left if positive; not 0")
_SUPPORT = dict.fromkeys(A2_CLASS | CLASS_950, WITH_BFLOAT16) | {Product.ATLAS_TRAINING: WITHOUT_BFLOAT16}
_NOT_ZERO = rule("not zero: alpha", _not_zero)

CELU = Operator(
    name="celu",
    function="aclnnCelu",
    summary="Continuously differentiable exponential linear unit.",
    formula="out = x if x > 0 else alpha * (exp(x / alpha) - 1)",
    parameters=(
        Parameter("self", "self", Kind.INPUT, "x"),
        _ALPHA,
        Parameter("out", "out", Kind.OUTPUT, "the result; its data type may differ"),
    ),
    support=_SUPPORT,
    checks=(
        present("self", "alpha", "out"),
        dtype_in(floating, "self"),
        real("alpha"),
        castable_from(lambda call: call["self"].dtype, "out"),
        limited_dims("self"),
        same_shape("out", "self"),
        _NOT_ZERO,
        *on(CLASS_950, public_format("self", "out")),
    ),
    work=_work,
    infer=lambda call: {"out": (call["self"].dtype, call["self"].shape)},
)

INPLACE_CELU = in_place(
    CELU,
    (
        present("selfRef", "alpha"),
        dtype_in(floating, "selfRef"),
        real("alpha"),
        limited_dims("selfRef"),
        _NOT_ZERO,
        *on(CLASS_950, public_format("selfRef")),
    ),
)


def celu(self: ArrayLike, alpha: Number = 1.0, out: ArrayLike | None = None) -> Array:
    """CELU: x for x > 0, ``alpha·(e^(x / alpha) - 1)`` otherwise.

    Args:
        self: x; float32, float16 or bfloat16, at most 8 dimensions. A NumPy array, or anything on the CPU with
            ``__dlpack__`` or ``__array_interface__``; any strides.
        alpha: a real number other than 0, which may be negative; rounded to float32.
        out: where to write the result, same shape, any of the three data types or float64; by default a new array
            of x's type.

    Returns:
        The result (``out`` if given).

    Raises:
        AclnnError: an argument that aclnnCelu rejects, with its status code.
    """
    return arrays.call(CELU, (self,), (alpha,), (out,))


def inplace_celu(self: ArrayLike, alpha: Number = 1.0) -> Array:
    """CELU written back into its argument.

    Args:
        self: x, which the result replaces; a writable array as for ``celu``.
        alpha: as for ``celu``.

    Returns:
        ``self``.

    Raises:
        AclnnError: an argument that aclnnInplaceCelu rejects, with its status code.
    """
    return arrays.call(INPLACE_CELU, (), (alpha,), (self,))
