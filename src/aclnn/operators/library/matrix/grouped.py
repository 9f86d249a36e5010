"""Grouped matrix products, as used by mixtures of experts.

They are aclnnGroupedMatmul, its V2 to V5, and aclnnGroupedMatmulWeightNz.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import FLOATING, dtype_in, each, elsewhere, extents, listing, null, one_of, rule, value_is
from aclnn.core.conversion import convert
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import LISTS, Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, attribute, parts_between, support
from aclnn.operators.library.lists import alike, each_of, not_null, of_types, public
from aclnn.operators.library.quantization.quantization import product_scale
from aclnn.operators.library.quantization.quantized_products import BLOCK, integer_product
from aclnn.operators.library.quantization.rounding import to_integers

_BIAS, _GROUPS = "biasOptional", "groupListOptional"
_TUNING = "tuningConfigOptional"
TUNED = Parameter(
    _TUNING,
    _TUNING,
    Kind.INT_ARRAY,
    "the expected number of rows per group, a hint for performance",
    optional=True,
    c_type="aclIntArray *",
)
_QUANTIZATION = ("scaleOptional", "offsetOptional", "antiquantScaleOptional", "antiquantOffsetOptional")
#: Parameters of V4 and later that must be null: before the list of groups, after it, results.
_MORE = (
    ("perTokenScaleOptional",),
    ("activationInputOptional", "activationQuantScaleOptional", "activationQuantOffsetOptional"),
    ("activationFeatureOutOptional", "dynQuantScaleOutOptional"),
)
_SCALE, _ROW_SCALE = _QUANTIZATION[0], _MORE[0][0]
_BITS = (D.UINT64, D.INT64)
"""Data types of scales made by aclnnTransQuantParamV2."""
_IN_BLOCKS = 6
"""Version whose weights are always in blocks, whatever their format."""
_VERSIONS = {
    "grouped_matmul": 1,
    **{f"grouped_matmul_v{number}": number for number in range(2, _IN_BLOCKS)},
    "grouped_matmul_weight_nz": _IN_BLOCKS,
}
_MOST_TENSORS, _MOST_TENSORS_950, _MOST_GROUPS = 128, 1024, 1024
_MOST_DIMS = 6
_MOST_INNER = 2**16 - 1
_MOST, _ALIGNED_BYTES = 2**31 - 1, 32
_BLOCK = (16, 16)
"""Rows and columns of a block of 16-bit elements."""
#: What is divided into groups: nothing, the rows of x, or the columns of x and the rows of the weight.
_NONE, _ROWS, _INNER = -1, 0, 2
_NO_ENDS = f"{_GROUPS}: expected the ends of groups, got null"
_TENSORS = "where the tensors of a list end"
#: Content of the list of groups: ends, or sizes.
_ENDS, _SIZES = 0, 1

Shape = tuple[int, ...]


def listed(name: str, meaning: str, optional: bool = False) -> Parameter:
    """Declare an input list of tensors."""
    return Parameter(name, name, Kind.INPUT_LIST, meaning, optional=optional)


def _version(call: Call) -> int:
    return _VERSIONS[call.operator.name]


def _of_numbers(call: Call) -> bool:
    """Return True if the list of groups is an array of numbers rather than a tensor."""
    return _version(call) < 3


def _kind(call: Call) -> int:
    """Return what is divided into groups, which for the first version follows from the given lists."""
    if _version(call) > 1:
        return int(call["groupType"])
    counts = [len(call[name]) for name in ("x", "weight", "y")]
    return _NONE if counts == [1, 1, 1] or (counts[0] > 1 and counts[2] > 1) else _ROWS


def _result(call: Call) -> str:
    return "out" if _version(call) > 3 else "y"


def _lists(call: Call) -> tuple[str, ...]:
    return "x", "weight", _result(call)


def _is_stacked(call: Call) -> bool:
    """Return True if a single 3-D weight holds those of all groups."""
    return _kind(call) == _ROWS and len(call["weight"]) == 1 and len(call["weight"][0].shape) == 3


def _is_one(call: Call) -> bool:
    """Return True if x, weight and y are each a single tensor for all groups."""
    return _is_stacked(call) or (_kind(call) == _INNER and call["splitItem"] > 1)


def _groups(call: Call) -> int:
    """Return the number of products."""
    if _is_stacked(call):
        return int(call["weight"][0].shape[0])
    return int(call[_result(call)][0].shape[0]) if _is_one(call) else len(call["weight"])


def _is_left_out(call: Call, name: str) -> bool:
    """Return True for an empty list, one with shape [0], or, before the 950 class, one that begins with null."""
    tensors = call[name]
    if not tensors:
        return tensors is not None
    if tensors[0] is None:
        return call.product not in CLASS_950
    return len(tensors) == 1 and tensors[0].shape == (0,)


def _with_nulls(call: Call) -> Call:
    """Return the call with null for each optional list that counts as absent."""
    names = (p.name for p in call.operator.parameters if p.optional and p.kind in LISTS)
    left_out = dict.fromkeys(name for name in names if _is_left_out(call, name))
    return replace(call, arguments={**call.arguments, **left_out}) if left_out else call


def _of_given_lists(check: Check) -> Check:
    """Apply the check to the call without absent lists."""
    return replace(check, violation=lambda call: check.violation(_with_nulls(call)))


def _few(call: Call, name: str) -> str | None:
    most = _MOST_TENSORS_950 if call.product in CLASS_950 and _version(call) not in (1, 3) else _MOST_TENSORS
    count = len(call[name])
    return None if 1 <= count <= most else f"expected 1 to {most} tensors, got {count}"


def _in_blocks(call: Call) -> bool:
    """Return True if weights are labelled as blocks."""
    return _version(call) == _IN_BLOCKS or call["weight"][0].format == Format.FORMAT_FRACTAL_NZ


def _of_integers(call: Call) -> bool:
    """Return True for INT8 products, which are followed by scales."""
    return _version(call) > 3 and bool(call["x"]) and call["x"][0].dtype == D.INT8


def _absent(call: Call, name: str) -> str | None:
    count = 0 if name in (_SCALE, _ROW_SCALE) and _of_integers(call) else len(call[name])
    return (
        f"expected null (quantized and activated products are not supported here), got {count} tensors"
        if count
        else None
    )


def _result_dtype(call: Call, name: str, at: int) -> str | None:
    if not _of_integers(call):
        return alike("x")(call, name, at)
    allowed, got = (D.FLOAT16, D.BF16, D.INT32, *(() if _in_blocks(call) else (D.INT8,))), call[name][at].dtype
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} with ACL_INT8 (x[0]), got {got.c_name}"


def _one_of_integers(call: Call, name: str) -> str | None:
    got = len(call[name])
    if not _of_integers(call) or (got == 1 and _kind(call) == _ROWS):
        return None
    return f"expected 1 tensor with groupType 0 with ACL_INT8 (x[0]), got {got} with groupType {_kind(call)}"


def _scaled_by_rows(call: Call) -> bool:
    return bool(call[_ROW_SCALE])


def _scales(call: Call) -> str | None:
    if not _of_integers(call):
        return None
    needed, got = call["out"][0].dtype != D.INT32, len(call[_SCALE] or ())
    if got == 1 if needed or (call.product in CLASS_950 and got) else got == 0:
        return None
    return f"{_SCALE}: expected {int(needed)} tensors with an output of {call['out'][0].dtype.c_name}, got {got}"


def _scale_dtype(call: Call, name: str, at: int) -> str | None:
    out, got, by_rows = call["out"][0].dtype, call[name][at].dtype, _scaled_by_rows(call)
    allowed: tuple[D, ...]
    if call.product in CLASS_950:
        floats = {D.BF16: (D.BF16, D.FLOAT), D.FLOAT16: (D.FLOAT,)}.get(out, ())
        allowed = floats if by_rows else (*floats, *_BITS)
    else:
        allowed = {D.BF16: (D.BF16,), D.FLOAT16: (D.FLOAT,)}.get(out, _BITS)
        if out == D.BF16 and _in_blocks(call):
            allowed = (D.BF16, D.FLOAT)
    if got in allowed:
        return None
    return f"expected data type {listing(of.c_name for of in allowed)} with an output of {out.c_name}, got {got.c_name}"


def _row_scales(call: Call) -> str | None:
    if not _scaled_by_rows(call):
        return None
    out, got = call["out"][0].dtype, len(call[_ROW_SCALE])
    if out not in (D.FLOAT16, D.BF16):
        return f"{_ROW_SCALE}: expected null with an output of {out.c_name}, got {got} tensors"
    return None if got == 1 else f"{_ROW_SCALE}: expected 1 tensor, got {got}"


def _float(call: Call, name: str, at: int) -> str | None:
    got = call[name][at].dtype
    return None if got == D.FLOAT else f"expected data type ACL_FLOAT, got {got.c_name}"


def _scale_shape(call: Call, name: str, at: int) -> str | None:
    groups, n, got = _groups(call), call["weight"][0].shape[-1], call[name][at].shape
    allowed: list[Shape] = [(groups, n)]
    if call.product in CLASS_950 and call["out"][0].dtype != D.INT8:
        allowed += [(groups, 1), (groups,)]
    return None if got in allowed else f"expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _row_scale_shape(call: Call, name: str, at: int) -> str | None:
    expected, got = call["x"][0].shape[:1], call[name][at].shape
    return None if got == expected else f"expected shape {extents(expected)} (one for each row), got {extents(got)}"


def _bias_beside_scales(call: Call) -> tuple[D, ...]:
    out, scale = call["out"][0].dtype, (call[_SCALE][0].dtype if call[_SCALE] else D.UINT64)
    if scale in _BITS:
        return (D.INT32,)
    if call.product in CLASS_950:
        return D.INT32, out, D.FLOAT
    return (D.INT32, D.BF16) if out == D.BF16 and _in_blocks(call) else (D.INT32,)


def _bias_dtype(call: Call, name: str, at: int) -> str | None:
    x, got = call["x"][0].dtype, call[name][at].dtype
    allowed: Collection[D] = (D.FLOAT if x == D.BF16 else x,)
    if _of_integers(call):
        allowed = _bias_beside_scales(call)
    elif call.product in CLASS_950:
        allowed = dict.fromkeys((x, D.FLOAT))
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} with {x.c_name}, got {got.c_name}"


def _split(call: Call) -> str | None:
    kind, got = _kind(call), call["splitItem"]
    allowed: tuple[int, ...] = (0, 1, 2, 3)
    if kind == _NONE and _version(call) > 1:
        allowed = (0, 1)
    elif kind == _ROWS and not _of_numbers(call):
        allowed = (2, 3)
    return (
        None if got in allowed else f"splitItem: expected {listing(map(str, allowed))} with groupType {kind}, got {got}"
    )


def _outputs(call: Call) -> str | None:
    name = _result(call)
    expected, got = 1 if call["splitItem"] > 1 else len(call["weight"]), len(call[name])
    if got == expected:
        return None
    return f"{name}: expected {expected} tensors with splitItem {call['splitItem']}, got {got}"


def _inputs(call: Call) -> str | None:
    weights, got = len(call["weight"]), len(call["x"])
    allowed = {_NONE: {weights}, _ROWS: {1, weights} if call["splitItem"] > 1 else {1}, _INNER: {1}}[_kind(call)]
    if got in allowed:
        return None
    return f"x: expected {listing(map(str, sorted(allowed)))} tensors for {weights} of weight, got {got}"


def _single_weight(call: Call) -> str | None:
    got = len(call["weight"])
    if got == 1 or not _is_one(call):
        return None
    return f"weight: expected 1 tensor with groupType 2 and splitItem {call['splitItem']}, got {got}"


def _ranks(call: Call, name: str, at: int) -> str | None:
    got = len(call[name][at].shape)
    allowed: tuple[int, ...] = (2,)
    if name == "weight" and _kind(call) == _ROWS and len(call["x"]) == len(call["weight"]) == 1:
        allowed = (3,) if _of_integers(call) else (2, 3)
    elif name == _result(call) and _kind(call) == _INNER and _is_one(call):
        allowed = (3,)
    elif name != "weight" and _kind(call) == _NONE and call.product not in CLASS_950:
        allowed = tuple(range(2, _MOST_DIMS + 1))
    if got in allowed:
        return None
    return f"expected {listing(map(str, allowed))} dimensions, got {got}"


def _weight_format(call: Call, name: str, at: int) -> str | None:
    """Accept the label of blocks for 16-bit weights; before the 950 class it does not change their layout."""
    tensor = call[name][at]
    if tensor.format == Format.FORMAT_FRACTAL_NZ and tensor.dtype != D.FLOAT and call.product not in CLASS_950:
        return None
    return public(call, name, at)


def _whole_blocks(call: Call, name: str, at: int) -> str | None:
    tensor = call[name][at]
    if not _in_blocks(call) or (call.product in CLASS_950 and _of_integers(call)):
        return None
    rows, columns = BLOCK if tensor.dtype == D.INT8 else _BLOCK
    if tensor.is_transposed:
        rows, columns = columns, rows
    k, n = tensor.shape[-2:]
    if k % rows == n % columns == 0 or not all(any(each.size for each in call[of]) for of in ("x", "weight")):
        return None
    return f"expected multiples of {rows} rows and of {columns} columns, got {extents((k, n))}"


def _extents(call: Call, name: str, at: int) -> str | None:
    tensor = call[name][at]
    block = _ALIGNED_BYTES // tensor.dtype.itemsize
    if all(-(-extent // block) * block < _MOST for extent in tensor.shape):
        return None
    return f"expected dimensions that stay below {_MOST} when rounded up to 32 bytes, got {extents(tensor.shape)}"


def _shapes(call: Call) -> tuple[list[Shape], list[Shape]]:
    """Return the expected last two dimensions of weights, and shapes of outputs; -1 matches any extent."""
    x, weight = ([tensor.shape for tensor in call[name]] for name in ("x", "weight"))
    n = weight[0][-1]
    if _kind(call) == _NONE:
        return [(of[-1], -1) for of in x], [(*of[:-1], w[-1]) for of, w in zip(x, weight, strict=True)]
    if _kind(call) == _ROWS and call["splitItem"] < 2:
        return [(x[0][1], -1)] * len(weight), [(-1, w[-1]) for w in weight]
    if _kind(call) == _ROWS:
        columns = [k for _, k in x] * (len(weight) // len(x))
        return [(k, n) for k in columns], [(sum(m for m, _ in x), n)]
    m, k = x[0]
    if _is_one(call):
        return [(k, -1)], [(-1, m, n)]
    return [(-1, -1)] * len(weight), [(m, w[-1]) for w in weight]


def _fits(got: Shape, expected: Shape) -> bool:
    return len(got) == len(expected) and all(map(lambda extent, wanted: wanted in (-1, extent), got, expected))


def _shown(shape: Shape) -> str:
    return extents(shape).replace("-1", "any")


def _weight_shape(call: Call, name: str, at: int) -> str | None:
    expected, got = _shapes(call)[0][at], call[name][at].shape[-2:]
    return None if _fits(got, expected) else f"expected matrices of {_shown(expected)}, got {extents(got)}"


def _output_shape(call: Call, name: str, at: int) -> str | None:
    expected, got = _shapes(call)[1][at], call[name][at].shape
    return None if _fits(got, expected) else f"expected shape {_shown(expected)}, got {extents(got)}"


def _enough_columns(call: Call) -> str | None:
    if _kind(call) != _INNER or _is_one(call):
        return None
    most, got = call["x"][0].shape[1], sum(weight.shape[0] for weight in call["weight"])
    return None if got <= most else f"weight: expected at most {most} rows in all (the columns of x[0]), got {got}"


def _bias_count(call: Call) -> str | None:
    expected, got = 0 if _kind(call) == _INNER else len(call["weight"]), len(call[_BIAS] or ())
    return None if got in (0, expected) else f"{_BIAS}: expected {expected or 'no'} tensors, got {got}"


def _bias_shape(call: Call, name: str, at: int) -> str | None:
    n, got = call["weight"][at].shape[-1], call[name][at].shape
    expected = (_groups(call), n) if _is_stacked(call) else (n,)
    return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"


def _group_list(call: Call) -> str | None:
    kind, given, many = _kind(call), call[_GROUPS] is not None, len(call["x"]) > 1
    apart = kind == _INNER and not _is_one(call)
    if kind == _NONE or (apart and call.product not in CLASS_950):
        return f"{_GROUPS}: expected null with groupType {kind}, got a tensor" if given else None
    return None if given or many or apart else _NO_ENDS


def _sizes(call: Call) -> list[int] | None:
    """Return the sizes of groups if they follow from a list of tensors."""
    if len(call["x"]) > 1 or _kind(call) == _NONE:
        return [tensor.shape[0] for tensor in call["x"]]
    if _kind(call) == _ROWS:
        return [tensor.shape[0] for tensor in call["y"]] if call["splitItem"] < 2 else None
    return None if _is_one(call) else [tensor.shape[0] for tensor in call["weight"]]


def _numbers(call: Call) -> str | None:
    kind, ends, sizes = _kind(call), call[_GROUPS] or (), _sizes(call)
    if not ends:
        return _NO_ENDS if len(call["x"]) == 1 and (kind == _ROWS or _is_one(call)) else None
    if kind == _NONE and (_version(call) > 1 or any(len(tensor.shape) > 2 for tensor in call["x"])):
        return f"{_GROUPS}: expected null with groupType -1 or more than 2 dimensions, got {extents(ends)}"
    if sizes is not None:
        wanted = np.cumsum(sizes).tolist()
        return None if [*ends] == wanted else f"{_GROUPS}: expected {extents(wanted)} ({_TENSORS}), got {extents(ends)}"
    whole, count = call["x"][0].shape[kind == _INNER], _groups(call)
    if len(ends) == count and [*ends] == sorted(ends) and ends[0] >= 0 and ends[-1] == whole:
        return None
    return f"{_GROUPS}: expected {count} numbers in order, from 0 on, the last {whole}, got {extents(ends)}"


def _group_count(call: Call, name: str) -> str | None:
    expected, got = _groups(call), call[name].shape
    return None if got == (expected,) else f"expected shape [{expected}] (an end for each group), got {extents(got)}"


def _together(call: Call) -> str | None:
    if call["x"][0].dtype != D.FLOAT or all(len(call[name]) == 1 for name in _lists(call)):
        return None
    return "x: expected data type ACL_FLOAT16 or ACL_BF16 in lists of several tensors, got ACL_FLOAT"


def _orientation(call: Call) -> str | None:
    wanted = _kind(call) == _INNER
    for at, tensor in enumerate(call["x"]):
        if not (tensor.is_transposed if wanted else tensor.is_contiguous) and tensor.size > 1:
            what = "transposed" if wanted else "contiguous"
            return f"x[{at}]: expected strides of a {what} matrix, got {extents(tensor.strides)}"
    return None


def _alike_oriented(call: Call) -> str | None:
    weights, may_be_transposed = call["weight"], _kind(call) != _INNER
    crooked = [at for at, weight in enumerate(weights) if not weight.is_contiguous]
    if not crooked or (may_be_transposed and all(weight.is_transposed for weight in weights)):
        return None
    at = crooked[0]
    what = "contiguous or transposed matrices, all of the same kind" if may_be_transposed else "contiguous matrices"
    return f"weight[{at}]: expected strides of {what}, got {extents(weights[at].strides)}"


def _short(call: Call, name: str, at: int) -> str | None:
    tensor = call[name][at]
    got = tensor.shape[-2 if tensor.is_transposed else -1]
    return None if got <= _MOST_INNER else f"expected at most {_MOST_INNER} elements in a row of memory, got {got}"


def ends_of(sizes: Any, name: str = _GROUPS) -> Any:
    """Return the ends of groups of given sizes."""
    negative = np.flatnonzero(sizes < 0)
    if len(negative):
        raise IndexError(f"{name}[{negative[0]}]: expected a size of at least 0, got {sizes[negative[0]]}")
    return np.cumsum(sizes)


def _expect_ends(ends: Any, sizes: Sequence[int]) -> None:
    expected = np.cumsum(sizes)
    if not np.array_equal(ends, expected):
        raise IndexError(
            f"{_GROUPS}: expected {expected.tolist()}, where the tensors of x or weight end, got {ends.tolist()}"
        )


def _work(call: Call) -> Library | None:
    call = _with_nulls(call)
    if _of_integers(call):
        return _integer_work(call)
    places = {name: [f"{name}[{at}]" for at in range(len(call[name] or ()))] for name in (*_lists(call), _BIAS)}
    result, sized = _result(call), call.arguments.get("groupListType") == _SIZES
    if not any(tensor.size for tensor in call[result]):
        return None
    kind, is_one, several = _kind(call), _is_one(call), call["splitItem"] < 2
    numbers = np.array(call[_GROUPS]) if _of_numbers(call) and call[_GROUPS] else None
    grouped = call[_GROUPS] is not None and not _of_numbers(call)
    ends_of_lists = np.cumsum([len(places[name]) for name in ("x", "weight", _BIAS)]).tolist()
    divided = kind == _ROWS and len(call["x"]) == 1

    def multiply(*operands: Any) -> Any:
        x, weight, bias = (operands[part] for part in map(slice, [0, *ends_of_lists], ends_of_lists))
        ends = operands[ends_of_lists[-1]] if grouped else numbers
        if sized and grouped:
            ends = ends_of(ends)
        if kind == _INNER:
            return _by_columns(x[0], weight, ends, is_one)
        if is_one:
            weight, bias = weight[0], bias[0] if bias else bias
        terms = bias if len(bias) else [0.0] * len(weight)
        if divided:
            parts = parts_between(ends, len(x[0]), _GROUPS)
            products = tuple(
                x[0][rows] @ factor + term for rows, factor, term in zip(parts, weight, terms, strict=True)
            )
            if several:
                return products
            y = operands[-1].copy()
            for rows, product in zip(parts, products, strict=True):
                y[rows] = product
            return y
        if ends is not None:
            _expect_ends(ends, [len(operand) for operand in x])
        products = tuple(operand @ factor + term for operand, factor, term in zip(x, weight, terms, strict=True))
        return np.concatenate(products) if kind == _ROWS else products

    # Rows after the last group are not written.
    stays = places[result] if divided and not several else []
    inputs = (*places["x"], *places["weight"], *places[_BIAS], *([_GROUPS] if grouped else []), *stays)
    return Library(multiply, inputs, tuple(places[result]))


def _integer_work(call: Call) -> Library | None:
    if call["out"][0].size == 0:
        return None
    dtype, n = call["out"][0].dtype, call["weight"][0].shape[-1]
    optional = [name for name in (_SCALE, _ROW_SCALE, _BIAS) if call[name]]
    has_bits = bool(call[_SCALE]) and call[_SCALE][0].dtype in _BITS
    whole_bias = bool(call[_BIAS]) and call[_BIAS][0].dtype == D.INT32
    sized = call["groupListType"] == _SIZES

    def multiply(x: Any, weight: Any, ends: Any, y: Any, *further: Any) -> Any:
        operands, y = dict(zip(optional, further, strict=True)), y.copy()
        for at, rows in enumerate(parts_between(ends_of(ends) if sized else ends, len(x), _GROUPS)):
            total = integer_product(x[rows], weight[at], (rows.stop - rows.start, n))
            bias = operands[_BIAS][at] if _BIAS in operands else 0
            if whole_bias:
                total += bias
            if dtype != D.INT32:
                factors, offset = product_scale(operands[_SCALE][at]) if has_bits else (operands[_SCALE][at], 0)
                total *= factors
                if _ROW_SCALE in operands:
                    total *= operands[_ROW_SCALE][rows, None]
                total += offset if whole_bias else bias + offset
            y[rows] = convert(to_integers(total) if dtype == D.INT8 else total, y.dtype)
        return y

    places = ("x[0]", "weight[0]", _GROUPS, "out[0]", *(f"{name}[0]" for name in optional))
    return Library(multiply, places, ("out[0]",))


def _by_columns(x: Any, weight: Sequence[Any], ends: Any, is_one: bool) -> Any:
    if is_one:
        return np.stack([x[:, part] @ weight[0][part] for part in parts_between(ends, x.shape[1], _GROUPS)])
    sizes = [len(factor) for factor in weight]
    if ends is not None:
        _expect_ends(ends, sizes)
    parts = parts_between(np.cumsum(sizes), x.shape[1], _GROUPS)
    return tuple(x[:, part] @ factor for part, factor in zip(parts, weight, strict=True))


def _tuned(call: Call) -> str | None:
    most, got = call["x"][0].shape[0], (call[_TUNING] or (0,))[0]
    return None if 0 <= got <= most else f"{_TUNING}: expected from 0 to {most} rows (of x[0]) first, got {got}"


_OF_INTEGERS = (
    each_of("data type of a result", ("out",), _result_dtype),
    each("one tensor of integers", ("x", "weight", "out"), _one_of_integers),
    rule(f"scales: {_SCALE}", _scales),
    rule(f"scales of rows: {_ROW_SCALE}", _row_scales),
    each_of("data type of scales", (_SCALE,), _scale_dtype),
    each_of("data type of scales of rows", (_ROW_SCALE,), _float),
)
_OF_SCALES = (
    each_of("a row of scales for each group", (_SCALE,), _scale_shape),
    each_of("one scale for each row", (_ROW_SCALE,), _row_scale_shape),
)


def _grouped(name: str) -> Operator:
    version = _VERSIONS[name]
    of_numbers, has_more, in_blocks = version < 3, version > 3, version == _IN_BLOCKS
    out, dtypes = "out" if has_more else "y", (D.FLOAT16, D.BF16) if version == 1 or in_blocks else FLOATING
    may_divide_columns = version > 1 and not in_blocks
    lists = ("x", "weight", out)
    operands = lists[:2] if has_more else lists
    before, after, more = _MORE if has_more else ((), (), ())
    optional = (_BIAS, *_QUANTIZATION, *before)
    meanings = {_SCALE: "factors of INT8's products", _ROW_SCALE: "a factor for each row of these"} if has_more else {}
    of_columns = ", 2: of columns of x" * may_divide_columns
    kinds = attribute("groupType", Kind.INT64, f"-1: no groups, 0: of rows of x{of_columns}")
    groups: tuple[Check, ...] = (
        rule("ends of groups: groupListOptional", _group_list),
        each("an end for each group", (_GROUPS,), _group_count),
        value_is(
            f"at most {_MOST_GROUPS} groups", lambda got: got <= _MOST_GROUPS, _GROUPS, of=lambda got: got.shape[0]
        ),
    )
    checks = (
        present(*lists),
        each("few tensors", lists, _few),
        each_of("no null among them", (*lists, *optional), not_null, ACLNN_ERR_PARAM_NULLPTR),
        *((null(*after, *more),) * has_more),
        each("not computed", optional[1:], _absent, ACLNN_ERR_INNER_NULLPTR),
        each_of("data type of each", operands, of_types((*dtypes, D.INT8) if has_more else dtypes)),
        each_of("one data type", operands, alike("x")),
        *(_OF_INTEGERS * has_more),
        each_of("data type with x", (_BIAS,), _bias_dtype),
        *(() if of_numbers else (dtype_in({D.INT64}, _GROUPS),)),
        *((one_of("groupType", _NONE, _ROWS, *((_INNER,) * may_divide_columns)),) if version > 1 else ()),
        *((one_of("groupListType", _ENDS, _SIZES), one_of("actType", 0)) if has_more else ()),
        rule("goes with groupType: splitItem", _split),
        rule(f"as many outputs as splitItem says: {out}", _outputs),
        rule("as many as of weight, or one: x", _inputs),
        *((rule("one weight: weight", _single_weight),) * may_divide_columns),
        each_of("public format of each", ("x", out, _BIAS), public),
        *(() if in_blocks else (each_of("format of a weight", ("weight",), _weight_format),)),
        each_of("dimensions of each", lists, _ranks),
        each_of("extents of each", ("x", "weight"), _extents),
        *(elsewhere(CLASS_950, rule("16 bits: x", _together)) * may_divide_columns),
        each_of("shape of a weight", ("weight",), _weight_shape),
        *((rule("enough columns in x: weight", _enough_columns),) * may_divide_columns),
        each_of("shape of a product", (out,), _output_shape),
        rule("as many biases as weights: biasOptional", _bias_count),
        each_of("a row of a product", (_BIAS,), _bias_shape),
        *(_OF_SCALES * has_more),
        *((rule("numbers of groups: groupListOptional", _numbers),) if of_numbers else groups),
        *((rule("rows of a group: tuningConfigOptional", _tuned),) if version > 4 else ()),
        rule("lie as groupType says: x", _orientation),
        rule("same layout: weight", _alike_oriented),
        *elsewhere(CLASS_950, each_of("short rows", ("x", "weight"), _short)),
        each_of("whole blocks", ("weight",), _whole_blocks),
    )
    return Operator(
        name=name,
        summary="Grouped matrix products.",
        formula=f"{out}[i] = x[i] @ weight[i] + biasOptional[i]"
        + f"; of INT8: (x[i] @ weight[i] + biasOptional[i]) * scaleOptional[i] * {_ROW_SCALE}" * has_more,
        parameters=(
            listed("x", "the left operands"),
            listed("weight", "the right operands"),
            listed(_BIAS, "the bias of each product", optional=True),
            *(listed(name, meanings.get(name, "null"), optional=True) for name in optional[1:]),
            Parameter(_GROUPS, _GROUPS, Kind.INT_ARRAY, "the end of each group", optional=True)
            if of_numbers
            else Parameter(_GROUPS, _GROUPS, Kind.INPUT, "the end of each group, or its size", optional=True),
            *(listed(name, "null", optional=True) for name in after),
            attribute("splitItem", Kind.INT64, f"0, 1: {out} has an output for each product, 2, 3: one for all"),
            *((kinds,) if version > 1 else ()),
            *(
                (
                    attribute("groupListType", Kind.INT64, "the contents of groupListOptional, 0: ends, 1: sizes"),
                    attribute("actType", Kind.INT64, "0: no activation"),
                )
                if has_more
                else ()
            ),
            *((TUNED,) if version > 4 else ()),
            *((attribute("quantGroupSize", Kind.INT64, "ignored"),) * in_blocks),
            Parameter(out, out, Kind.OUTPUT_LIST, "the products", c_type=None if has_more else Kind.INPUT_LIST.value),
            *(Parameter(name, name, Kind.OUTPUT_LIST, "null", optional=True) for name in more),
        ),
        support=support(dtypes, MODERN),
        checks=tuple(map(_of_given_lists, checks)),
        work=_work,
        leaves=True,
    )


OPERATORS = tuple(map(_grouped, _VERSIONS))
