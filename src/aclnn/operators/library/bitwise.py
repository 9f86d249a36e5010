"""aclnnBitwiseAndTensor, aclnnBitwiseAndScalar."""

from __future__ import annotations

import operator

from aclnn.core.checks import (
    broadcast_shape_of,
    broadcastable,
    castable_from,
    dtype_in,
    limited_dims,
    present,
    promotable,
    public_format,
    same_shape,
    where_supported,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call
from aclnn.core.products import CLASS_950
from aclnn.core.promotion import promote
from aclnn.operators.library.common import (
    INTEGERS,
    UNSIGNED,
    library_operator,
    promoted,
    scalar,
    scalar_promotes,
    tensor_in,
    tensor_out,
    type_with_scalar,
)

_SELF, _OUT = tensor_in("self", "the first operand"), tensor_out()
_OTHER, _NUMBER = tensor_in("other", "the second operand"), scalar("other", "the second operand")
_BITS = (*INTEGERS, D.UINT16, D.BOOL)


def _type_with_scalar(call: Call) -> D | None:
    if call.product in CLASS_950:
        return type_with_scalar(call, "self", "out")
    return promote(call["self"].dtype, call["other"].dtype)


def _checked_type(call: Call) -> D:
    found = _type_with_scalar(call)
    assert found is not None
    return found


OPERATORS = (
    library_operator(
        "bitwise_and_tensor",
        "out = self & other",
        "And of the bits of two tensors.",
        (_SELF, _OTHER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(where_supported((*INTEGERS, *UNSIGNED, D.BOOL)), "self", "other"),
            promotable("self", "other"),
            castable_from(lambda call: promoted(call, "self", "other"), "out"),
            public_format("self", "other", "out"),
            limited_dims("self", "other"),
            broadcastable("other", "self"),
            broadcast_shape_of("out", "self", "other"),
        ),
        operator.and_,
        header="bitwise_and_tensor",
        dtype=lambda call: promoted(call, "self", "other"),
        dtypes=(*INTEGERS, *UNSIGNED, D.BOOL),
    ),
    library_operator(
        "bitwise_and_scalar",
        "out = self & other",
        "And of the bits of a tensor and a number.",
        (_SELF, _NUMBER, _OUT),
        (
            present("self", "other", "out"),
            dtype_in(where_supported(_BITS), "self", "other"),
            scalar_promotes(_type_with_scalar, "self"),
            castable_from(_checked_type, "out"),
            public_format("self", "out"),
            limited_dims("self"),
            same_shape("out", "self"),
        ),
        operator.and_,
        header="bitwise_and_scalar",
        dtype=_checked_type,
        dtypes=_BITS,
    ),
)
