"""Split one tensor into a list: aclnnSplitTensor, aclnnSplitWithSize."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import axis, dtype_in, extents, fits, limited_dims, rule, some_dims
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import NUMBERS, UNSIGNED, attribute, on_950, support, tensor_in
from aclnn.operators.library.lists import each_of, few_dims, not_null, of_types

_TAKEN = on_950(UNSIGNED, NUMBERS)
_WIDE = {D.DOUBLE, D.COMPLEX64, D.COMPLEX128}
_MOST_WIDE = 32
"""Maximum number of parts of tensors of ``_WIDE`` data types before Ascend 950."""
Sizes = Callable[[Call], Sequence[int]]


class _Even(Sequence[int]):
    """Sizes of equal parts, computed on access: an extent without memory behind it may have too many to store."""

    def __init__(self, extent: int, step: int) -> None:
        self._extent, self._begins = extent, range(0, extent, step)

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, at: Any) -> Any:
        return min(self._begins.step, self._extent - self._begins[at])


def _even(call: Call) -> Sequence[int]:
    extent, step = call["self"].shape[call["dim"]], call["splitSections"]
    return _Even(extent, step) if step else (0,)


def _sum_of_sizes(call: Call) -> str | None:
    sizes, extent = call["splitSize"], call["self"].shape[call["dim"]]
    negative = next((size for size in sizes if size < 0), None)
    if negative is not None:
        return f"splitSize: expected sizes of at least 0, got {negative}"
    total = sum(sizes)
    return None if total == extent else f"splitSize: expected sizes that add up to self's {extent}, got {total}"


def _some_to_split(call: Call) -> str | None:
    extent, got = call["self"].shape[call["dim"]], call["splitSections"]
    if (extent == 0) == (got == 0):
        return None
    return f"splitSections: expected {'0' if extent == 0 else 'more than 0'} (self has {extent} along dim), got {got}"


def _few_wide(call: Call) -> str | None:
    dtype, count = call["self"].dtype, len(call["out"])
    if dtype not in _WIDE or count <= _MOST_WIDE or call.product in CLASS_950:
        return None
    return f"out: expected at most {_MOST_WIDE} tensors of {dtype.c_name}, got {count}"


def _operator(
    name: str,
    formula: str,
    what: Parameter,
    sizes: Sizes,
    problem: Callable[[Call], str | None],
    products: Collection[Product],
) -> Operator:
    def part_shape(call: Call, name: str, at: int) -> str | None:
        expected = list(call["self"].shape)
        expected[call["dim"]] = sizes(call)[at]
        got = call[name][at].shape
        return None if list(got) == expected else f"expected shape {extents(expected)}, got {extents(got)}"

    def same_dtype(call: Call, name: str, at: int) -> str | None:
        expected, got = call["self"].dtype, call[name][at].dtype
        return None if got == expected else f"expected {expected.c_name} (that of self), got {got.c_name}"

    def work(call: Call) -> Library | None:
        written = [at for at, tensor in enumerate(call["out"]) if tensor.size]
        if not written:
            return None
        ends, dim = [*itertools.accumulate(sizes(call))][:-1], call["dim"]

        def split(x: Any) -> tuple[Any, ...]:
            parts = np.split(x, ends, dim)
            return tuple(parts[at] for at in written)

        return Library(split, ("self",), tuple(f"out[{at}]" for at in written))

    return Operator(
        name=name,
        summary="Split a tensor along a dimension.",
        formula=formula,
        parameters=(
            tensor_in("self", "the tensor to split"),
            what,
            attribute("dim", Kind.INT64, "the dimension to split along"),
            Parameter("out", "out", Kind.OUTPUT_LIST, "the parts, in order"),
        ),
        support=support((*NUMBERS, *UNSIGNED), products),
        checks=(
            each_of("no null among them", ("out",), not_null, ACLNN_ERR_PARAM_NULLPTR),
            dtype_in(_TAKEN, "self"),
            each_of("data type of each", ("out",), of_types(_TAKEN)),
            each_of("same data type as self", ("out",), same_dtype),
            limited_dims("self"),
            each_of("at most 8 dimensions each", ("out",), few_dims),
            some_dims("self"),
            axis("dim", "self"),
            rule(f"sizes: {what.name}", problem),
            fits("{} tensors", lambda call, got: (len(sizes(call)), len(got)), "out"),
            each_of("shape of each part", ("out",), part_shape),
            rule("at most 32 of wide elements: out", _few_wide),
        ),
        work=work,
    )


OPERATORS = (
    _operator(
        "split_tensor",
        "out[i] = splitSections elements of self along dim, the last with the remainder",
        attribute("splitSections", Kind.UINT64, "the size of each part along dim"),
        _even,
        _some_to_split,
        A2_CLASS | CLASS_950 | {Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING},
    ),
    _operator(
        "split_with_size",
        "out[i] = splitSize[i] elements of self along dim",
        attribute("splitSize", Kind.INT_ARRAY, "the sizes of the parts along dim"),
        lambda call: tuple(call["splitSize"]),
        _sum_of_sizes,
        A2_CLASS | CLASS_950 | {Product.ATLAS_TRAINING},
    ),
)
