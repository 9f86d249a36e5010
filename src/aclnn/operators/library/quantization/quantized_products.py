"""Products of quantised matrices: aclnnQuantMatmul, its V2 to V5, and aclnnQuantMatmulWeightNz.

Integer products are exact: BLAS multiplies in float32 as many terms at a time as stay exact. Products of MX formats are
accumulated in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    KERNEL_OF_THE_PRODUCT,
    broadcast_shape,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    format_is,
    listing,
    no_zero_dims,
    not_empty,
    null,
    on,
    one_of,
    public_format,
    restricted,
    rule,
    shape_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Shape
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    ACLNN_ERR_RUNTIME_ERROR,
)
from aclnn.operators.library.common import MODERN, attribute, optional_in, support, tensor_in, tensor_out
from aclnn.operators.library.quantization.four_bits import IN_INT32, unpacked, unpacked_words
from aclnn.operators.library.quantization.microscaling import BLOCK as MX_BLOCK
from aclnn.operators.library.quantization.microscaling import PAIR, factors, restored
from aclnn.operators.library.quantization.quantization import given, product_scale, scale_bits
from aclnn.operators.library.quantization.rounding import to_integers

_FOUR_BITS = (D.INT4, D.INT32)
_IN_BLOCKS = "quant_matmul_weight_nz"
_BITS = (D.UINT64, D.INT64)
#: Number of INT8 products that float32 sums exactly, and number of columns that fit into the cache with them.
_EXACT, _COLUMNS = 1 << (24 - 14), 1 << 8


class _Names(NamedTuple):
    """A function's names for the scales and offset of columns, and for the scales of rows."""

    scale: str
    offset: str
    rows: str


_TRANSPOSING = ("transpose", "adj")
"""Prefixes of the names of flags, of which the first function has none."""
_OLD = _Names("scale", "offset", "pertokenScaleOptional")
_NEW = _Names("x2Scale", "x2Offset", "x1Scale")
_RESERVED = ("yScale", "x1Offset", "yOffset")


def _names(call: Call) -> _Names:
    return _NEW if _NEW.scale in call.arguments else _OLD


def _scale(call: Call) -> D:
    dtype: D = call[_names(call).scale].dtype
    return dtype


def _by_rows(call: Call) -> bool:
    return call.arguments.get(_names(call).rows) is not None


def _swapped(shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2])


class _Matrices(NamedTuple):
    """Storage of the matrices of x1 or x2."""

    shape: Shape
    """Shape in memory, in elements."""
    turned: bool
    """True if the tensor is a transposed view."""
    transposed: bool
    """True if the product takes the matrices transposed."""

    @property
    def factors(self) -> Shape:
        """Shape in the product."""
        return _swapped(self.shape) if self.transposed else self.shape


def _matrices(call: Call, name: str) -> _Matrices:
    tensor, transposed = call[name], any(call.arguments.get(f"{word}{name.upper()}", False) for word in _TRANSPOSING)
    shape: Shape = _swapped(tensor.shape) if tensor.is_transposed else tensor.shape
    if tensor.dtype == D.INT32:
        shape = (*shape[:-1], IN_INT32 * shape[-1])
    return _Matrices(shape, tensor.is_transposed, transposed ^ tensor.is_transposed)


def _reader(call: Call, name: str) -> Callable[[Any], Any]:
    dtype, (shape, turned, transposed) = call[name].dtype, _matrices(call, name)

    def read(stored: Any) -> Any:
        if dtype == D.INT4:
            stored = unpacked(stored, shape)
        elif dtype == D.FLOAT4_E2M1:
            stored = restored(stored, dtype, shape)
        elif turned:
            stored = stored.swapaxes(-1, -2)
        if dtype == D.INT32:
            stored = unpacked_words(stored)
        return stored.swapaxes(-1, -2) if transposed else stored

    return read


BLOCK = (16, 32)
"""Rows and columns of an INT8 block in FRACTAL_NZ."""


def integer_product(x1: Any, x2: Any, shape: Shape) -> Any:
    """Multiply integers of at most eight bits exactly; return float64."""
    total = np.zeros(shape)
    left = x1.astype(np.float32)
    for inner in range(0, left.shape[-1], _EXACT):
        terms = slice(inner, inner + _EXACT)
        for begin in range(0, shape[-1], _COLUMNS):
            block = slice(begin, begin + _COLUMNS)
            total[..., block] += left[..., terms] @ x2[..., terms, block].astype(np.float32)
    return total


def _product_shape(call: Call) -> Shape | None:
    """Return the shape of the products, None if leading dimensions do not broadcast."""
    left, right = (_matrices(call, name).factors for name in ("x1", "x2"))
    batch = broadcast_shape(left[:-2], right[:-2])
    return None if batch is None else (*batch, left[-2], right[-1])


def _shape(call: Call) -> Shape:
    found = _product_shape(call)
    assert found is not None
    return found


def _nothing(call: Call, name: str) -> str | None:
    return f"expected null or an empty tensor, got shape {extents(call[name].shape)}" if call[name].size else None


def _of_eight_and_four(call: Call) -> str | None:
    x1, x2 = call["x1"].dtype, call["x2"].dtype
    if x1 != D.INT8 or x2 == D.INT8:
        return None
    return f"x2: expected data type ACL_INT8 (products of 8 and 4 bits are not supported here), got {x2.c_name}"


def _of_four(call: Call) -> str | None:
    x1, x2 = call["x1"].dtype, call["x2"].dtype
    if x1 == D.INT8 or x2 in _FOUR_BITS:
        return None
    return f"x2: expected data type ACL_INT4 or ACL_INT32 with {x1.c_name}, got {x2.c_name}"


def _of_blocks(call: Call, name: str) -> str | None:
    names, got = _names(call), call[name].shape
    if not _by_rows(call) or len(got) == 1 or len(call[names.rows].shape) == 1:
        return None
    return f"expected one dimension (scales of blocks are not supported here), got {extents(got)}"


def _expected(allowed: tuple[D, ...], got: D, beside: str) -> str | None:
    if got in allowed:
        return None
    return f"expected data type {listing(dtype.c_name for dtype in allowed)} {beside}, got {got.c_name}"


def _out_dtype(call: Call, name: str) -> str | None:
    wide = _by_rows(call) or call["x1"].dtype in _FOUR_BITS
    return _expected((D.FLOAT16, D.BF16) if wide else (D.FLOAT16, D.BF16, D.INT8, D.INT32), call[name].dtype, "here")


def _scale_dtype(call: Call, name: str) -> str | None:
    out, four_bits, floats = call["out"].dtype, call["x1"].dtype in _FOUR_BITS, (D.FLOAT, D.BF16)
    allowed: tuple[D, ...]
    if _by_rows(call):
        allowed = floats if out == D.BF16 else (D.FLOAT,)
    elif out in (D.FLOAT16, D.INT8) or four_bits:
        allowed = _BITS
    else:
        allowed = (*floats, *_BITS) if out == D.BF16 and call.product in CLASS_950 else floats
    return _expected(allowed, call[name].dtype, f"with an output of {out.c_name}")


def _bias_dtype(call: Call, name: str) -> str | None:
    out = call["out"].dtype
    floats = _by_rows(call) or (out == D.BF16 and _scale(call) not in _BITS)
    return _expected((D.INT32, D.FLOAT, out) if floats else (D.INT32,), call[name].dtype, "with such scales")


def _no_offset(call: Call, name: str) -> str | None:
    out = call["out"].dtype
    return None if out == D.INT8 else f"expected null with an output of {out.c_name}, got a tensor"


def _whole(call: Call, name: str) -> str | None:
    tensor = call[name]
    if tensor.dtype not in _FOUR_BITS:
        return None
    shape, turned, transposed = _matrices(call, name)
    if name == "x1" and transposed:
        return "expected a 4-bit matrix that is not transposed, got a transposed one"
    if name == "x2" and len(shape) != 2:
        return f"expected 2 dimensions of four bits, got {len(shape)}"
    if shape[-1] % 2 or not shape[-1]:
        return f"expected an even number along the dimension that lies in memory as one, got {shape[-1]}"
    if tensor.is_contiguous or (turned and len(shape) == 2):
        return None
    return f"expected strides of contiguous matrices or a transposed one, got {extents(tensor.strides)}"


def _inner(call: Call) -> str | None:
    expected, got = _matrices(call, "x1").factors[-1], _matrices(call, "x2").factors[-2]
    return None if got == expected else f"x2: expected {expected} rows (the columns of x1), got {got}"


def _row_scales(call: Call, name: str) -> str | None:
    m, got = _matrices(call, "x1").factors[-2], call[name].shape
    allowed = dict.fromkeys([(m,)] if call["x1"].dtype == D.INT8 else [(m,), (1,)])
    return None if got in allowed else f"expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _column_scales(call: Call, name: str) -> str | None:
    n, got = _matrices(call, "x2").factors[-1], call[name].shape
    return None if got in ((1,), (n,)) else f"expected shape [1] or [{n}], got {extents(got)}"


def _blocks(call: Call) -> str | None:
    shape = _matrices(call, "x2").factors
    if call["x2"].format != Format.FORMAT_FRACTAL_NZ or 1 not in shape[-2:]:
        return None
    return f"x2: expected no dimension of 1 in ACL_FORMAT_FRACTAL_NZ, got {extents(shape)}"


def _batches(call: Call) -> str | None:
    if _product_shape(call) is not None:
        return None
    return f"x2: expected leading dimensions that broadcast with those of x1, got {extents(call['x2'].shape)}"


def _bias_shape(call: Call, name: str) -> str | None:
    shape, got = _shape(call), call[name].shape
    allowed: list[Shape] = [shape[-1:]]
    if len(shape) == 3 and call["x1"].dtype not in _FOUR_BITS:
        allowed.append((shape[0], 1, shape[-1]))
    return None if got in allowed else f"expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _out_shape(call: Call) -> str | None:
    shape, got = _shape(call), call["out"].shape
    # A bias for a 2-D product may have one more dimension.
    if got == shape or (len(shape) == 2 and got == (shape[0], 1, shape[1])):
        return None
    return f"out: expected shape {extents(shape)} (that of the product), got {extents(got)}"


def _weight_format(call: Call) -> str | None:
    got = call["x2"].format
    may_lie_in_blocks = call.operator.name == _IN_BLOCKS or call["x2"].dtype not in _FOUR_BITS
    if not got.private or (may_lie_in_blocks and got == Format.FORMAT_FRACTAL_NZ):
        return None
    return f"x2: expected format ACL_FORMAT_ND{' or ACL_FORMAT_FRACTAL_NZ' * may_lie_in_blocks}, got {got.c_name}"


def _work(call: Call) -> Library | None:
    out, names = call["out"], _names(call)
    if out.size == 0:
        return None
    first, second, shape = _reader(call, "x1"), _reader(call, "x2"), _shape(call)
    dtype, dims, has_bits = out.dtype, out.shape, _scale(call) in _BITS
    optional = given(call, names.rows, "bias")
    whole_bias = "bias" in optional and call["bias"].dtype == D.INT32

    def multiply(x1: Any, x2: Any, scale: Any, *further: Any) -> Any:
        operands = dict(zip(optional, further, strict=True))
        total, bias = integer_product(first(x1), second(x2), shape), operands.get("bias", 0)
        if whole_bias or dtype == D.INT32:
            total += bias
        if dtype == D.INT32:
            return total.reshape(dims)
        # A device takes the offset from the scale's bits and reads no other.
        factors, offset = product_scale(scale) if has_bits else (scale, 0)
        total *= factors
        if names.rows in operands:
            total *= operands[names.rows][:, None]
        if not whole_bias:
            total += bias
        return (to_integers(total + offset) if dtype == D.INT8 else total).reshape(dims)

    return Library(multiply, ("x1", "x2", names.scale, *optional), ("out",))


_EIGHT_BITS = (D.FLOAT8_E4M3FN, D.FLOAT8_E5M2)
_MX_FORMATS = (*_EIGHT_BITS, D.FLOAT4_E2M1)
_MX_SCALES = ("x1Scale", "x2Scale")
#: Number of rows, columns and terms of a product per scale, as in ``groupSize``, and their bit widths.
_MX_GROUP, _GROUP_BITS = (1, 1, MX_BLOCK), 16


def _is_mx(call: Call) -> bool:
    tensors = [call[name] for name in _MX_SCALES]
    return call.product in CLASS_950 and all(each is not None and each.dtype == D.FLOAT8_E8M0 for each in tensors)


def _is_mixed(call: Call) -> bool:
    """Return True for products of 8-bit and 4-bit types."""
    return _is_mx(call) and call["x1"].dtype == D.FLOAT8_E4M3FN and call["x2"].dtype == D.FLOAT4_E2M1


def _formats(call: Call) -> str | None:
    x1, x2 = call["x1"].dtype, call["x2"].dtype
    right = (D.FLOAT4_E2M1,) if x1 not in _EIGHT_BITS else _EIGHT_BITS
    if call["x2"].format == Format.FORMAT_FRACTAL_NZ:
        right = {D.FLOAT8_E4M3FN: (x1, D.FLOAT4_E2M1), D.FLOAT4_E2M1: (x1,)}.get(x1, ())
    if x2 in right or _is_mixed(call):
        return None
    beside = f"with {x1.c_name} in {call['x2'].format.c_name}"
    return f"x2: {_expected(right, x2, beside)}"


def _turned_blocks(call: Call) -> str | None:
    four_bits = call["x1"].dtype == call["x2"].dtype == D.FLOAT4_E2M1
    wrong = four_bits and call["x2"].format == Format.FORMAT_FRACTAL_NZ and call["transposeX1"]
    return "transposeX1: expected false with four-bit types in ACL_FORMAT_FRACTAL_NZ, got true" if wrong else None


def _mx_bias_dtype(call: Call, name: str) -> str | None:
    return _expected((D.BF16,) if _is_mixed(call) else (D.FLOAT,), call[name].dtype, "with such scales")


def _mx_out_dtype(call: Call, name: str) -> str | None:
    return _expected((D.BF16,) if _is_mixed(call) else FLOATING, call[name].dtype, "with such scales")


def _mx_pairs(extent: int) -> int:
    return -(-extent // (MX_BLOCK * PAIR))


def _mx_shape(name: str) -> Callable[[Call], Shape]:
    """Return the shape of the scales of x1 or x2, stored like its matrices."""
    last = {"x1": True, "x2": False}[name]

    def find(call: Call) -> Shape:
        rows, columns = _matrices(call, name).factors[-2:]
        pairs = (rows, _mx_pairs(columns)) if last else (_mx_pairs(rows), columns)
        return (*(pairs[::-1] if call[f"transpose{name.upper()}"] else pairs), PAIR)

    return find


def _group(call: Call) -> str | None:
    """Return an error text for another group size than that of the scales, which 0 stands for."""
    got = call["groupSize"]
    given = tuple(got >> shift & (1 << _GROUP_BITS) - 1 for shift in (2 * _GROUP_BITS, _GROUP_BITS, 0))
    if _is_mixed(call):
        return None if given[2] == MX_BLOCK else f"groupSize: expected {MX_BLOCK} in the lowest 16 bits, got {got}"
    k = _matrices(call, "x1").factors[-1]
    divides = k and k % (MX_BLOCK * PAIR) == 0
    found = (given[0] or 1, given[1] or 1, given[2] or (MX_BLOCK if divides else 0))
    if found == _MX_GROUP:
        return None
    return f"groupSize: expected 1, 1 and {MX_BLOCK} in 16 bits each, got {', '.join(map(str, given))} ({got})"


def _mx_whole(call: Call, name: str) -> str | None:
    tensor = call[name]
    if tensor.dtype != D.FLOAT4_E2M1:
        return None
    shape, turned, _ = _matrices(call, name)
    if shape[-1] % 2 or not shape[-1]:
        return f"expected an even number along the dimension that lies in memory as one, got {shape[-1]}"
    if not (tensor.is_contiguous or (turned and len(shape) == 2)):
        return f"expected strides of contiguous matrices or a transposed one, got {extents(tensor.strides)}"
    terms = _matrices(call, name).factors[-1 if name == "x1" else -2]
    return None if terms > 2 else f"expected products of more than 2 terms of four bits, got {terms}"


def _mixed(call: Call) -> str | None:
    if not _is_mixed(call):
        return None
    x1, x2 = call["x1"].shape, call["x2"].shape
    if len(x1) != 2 or len(x2) != 2 or call["transposeX1"] or not call["transposeX2"] or x1[1] % (MX_BLOCK * PAIR):
        expected = (
            f"matrices of a multiple of {MX_BLOCK * PAIR} columns, the right one transposed, with ACL_FLOAT4_E2M1"
        )
        return f"x1: expected {expected}, got shapes {extents(x1)} and {extents(x2)}"
    return None


def _mx_work(call: Call) -> Library | None:
    out = call["out"]
    if out.size == 0:
        return None
    first, second, dims = _reader(call, "x1"), _reader(call, "x2"), out.shape
    turned = [call[f"transpose{name}"] for name in ("X1", "X2")]
    terms, optional = _matrices(call, "x1").factors[-1], given(call, "bias")

    def multiply(x1: Any, x2: Any, rows: Any, columns: Any, bias: Any = 0) -> Any:
        left = factors(rows.swapaxes(0, 1) if turned[0] else rows, terms)
        right = factors(columns if turned[1] else columns.swapaxes(0, 1), terms)
        total = (first(x1).astype(np.float64) * left) @ (second(x2).astype(np.float64) * right.T)
        return (total + bias).reshape(dims)

    return Library(multiply, ("x1", "x2", *_MX_SCALES, *optional), ("out",))


def _mx_checks(*further: Check) -> tuple[Check, ...]:
    """Return the checks of operands with scales of MX formats."""
    checks = restricted(
        "with FLOAT8_E8M0",
        _is_mx,
        *further,
        dims_between(2, 6, "x1", "x2", "out"),
        dtype_in(_MX_FORMATS, "x1", "x2"),
        rule("formats together: x2", _formats),
        each("data type with scales", ("bias",), _mx_bias_dtype),
        each("data type of products", ("out",), _mx_out_dtype),
        null("x2Offset", why="with ACL_FLOAT8_E8M0"),
        dims_between(3, 3, *_MX_SCALES),
        rule("no transposition in blocks: transposeX1", _turned_blocks),
        rule("groups of 32: groupSize", _group),
        each("whole bytes", ("x1", "x2"), _mx_whole),
        rule("as many rows as x1 has columns: x2", _inner),
        rule("matrices with four-bit types: x1", _mixed),
        *(shape_is("two for two blocks", _mx_shape(name), f"{name}Scale") for name in ("x1", "x2")),
        rule("leading dimensions that broadcast: x2", _batches),
        each("a row of a product", ("bias",), _mx_bias_shape),
        rule("shape of the product: out", _out_shape),
        public_format("x1", *_MX_SCALES, "bias"),
        *(() if further else (rule("format of the weight: x2", _weight_format),)),
        not_empty("x1", "x2"),
    )
    named = (check.name.partition(": ") for check in checks)
    return tuple(
        replace(check, name=f"{title} of MX formats: {names}")
        for check, (title, _, names) in zip(checks, named, strict=True)
    )


def _mx_bias_shape(call: Call, name: str) -> str | None:
    if not _is_mixed(call):
        return _bias_shape(call, name)
    expected, got = (1, _shape(call)[-1]), call[name].shape
    return None if got == expected else f"expected shape {extents(expected)}, got {extents(got)}"


def _operator(
    name: str, *further: Check, rows: bool = True, code: int | None = None, mx: tuple[Check, ...] = ()
) -> Operator:
    """Declare a function.

    Args:
        name: name of the function.
        further: additional checks without MX scales.
        rows: True if rows may have scales.
        code: status for V5's reserved tensors.
        mx: additional checks with MX scales.
    """
    is_new = code is not None
    names = _NEW if is_new else _OLD
    by_rows = (names.rows,) * rows
    quantities = (names.scale, names.offset, *by_rows)
    scale = tensor_in(names.scale, "the scales of columns; FLOAT, BF16 or encoded by aclnnTransQuantParamV2")
    offset = optional_in(names.offset, "the offset of an INT8 output; ignored: the encoded scale contains it")
    row_scales = [optional_in(each, "the scales of rows; FLOAT") for each in by_rows]
    reserved = {each: optional_in(each, "null or empty") for each in _RESERVED}
    order = (
        (*row_scales, scale, reserved["yScale"], reserved["x1Offset"], offset, reserved["yOffset"])
        if is_new
        else (scale, offset, *row_scales)
    )
    of_rows = rows * (
        each("not computed", (names.scale,), _of_blocks, ACLNN_ERR_INNER_NULLPTR),
        dtype_in({D.FLOAT}, *by_rows),
        each("one for each row", by_rows, _row_scales),
    )
    taken = support((D.INT8, *_FOUR_BITS), MODERN)
    plain = (
        *further,
        dims_between(2, 6, "x1", "x2", "out"),
        dtype_in({D.INT8, *_FOUR_BITS}, "x1", "x2"),
        rule("not computed: x2", _of_eight_and_four, ACLNN_ERR_INNER_NULLPTR),
        rule("four bits together: x2", _of_four),
        *of_rows[:2],
        each("data type of products", ("out",), _out_dtype),
        each("data type of scales", (names.scale,), _scale_dtype),
        each("data type with scales", ("bias",), _bias_dtype),
        each("of INT8 alone", (names.offset,), _no_offset),
        dtype_in({D.FLOAT}, names.offset),
        dims_between(1, 1, *quantities),
        each("whole bytes", ("x1", "x2"), _whole),
        rule("as many rows as x1 has columns: x2", _inner),
        *of_rows[2:],
        rule("no dimension of 1 in blocks: x2", _blocks),
        each("one for each column", (names.scale, names.offset), _column_scales),
        rule("leading dimensions that broadcast: x2", _batches),
        each("a row of a product", ("bias",), _bias_shape),
        rule("shape of the product: out", _out_shape),
        public_format("x1", *quantities, "bias"),
        rule("format of the weight: x2", _weight_format),
        *elsewhere(CLASS_950, no_zero_dims("x1", "x2")),
    )
    return Operator(
        name=name,
        summary="Quantized matrix product with dequantization.",
        formula=f"out = (x1 @ x2 + bias) * {' * '.join((names.scale, *by_rows))} + {names.offset}",
        parameters=(
            tensor_in("x1", "the left operand, INT8 or INT4; INT32 holds eight of INT4" + is_new * ", or an MX format"),
            tensor_in("x2", "the right operand, likewise"),
            *order,
            optional_in("bias", "the bias: INT32 before scaling, floating-point after"),
            attribute("transposeX1", Kind.BOOL, "whether x1 is transposed"),
            attribute("transposeX2", Kind.BOOL, "whether x2 is transposed"),
            *(
                (attribute("groupSize", Kind.INT64, "ignored, 0 on Ascend 950, 1 << 32 | 1 << 16 | 32 of MX formats"),)
                * is_new
            ),
            tensor_out("out", "the result; FLOAT16, BF16, INT8 or INT32", const=not is_new),
        ),
        support={**taken, **(support((*taken[Product.ASCEND_950], *_MX_FORMATS), CLASS_950) if is_new else {})},
        checks=(
            *((each("null or empty", _RESERVED, _nothing, code),) if code is not None else ()),
            *(restricted("without FLOAT8_E8M0", lambda call: not _is_mx(call), *plain) if is_new else plain),
            *(_mx_checks(*mx) * is_new),
        ),
        work=(lambda call: _mx_work(call) if _is_mx(call) else _work(call)) if is_new else _work,
    )


_FACTOR, _ALIGNED = "deqScale", 16


def _room(call: Call) -> Shape:
    """One scale for each column of whole blocks."""
    return (-(-_matrices(call, "x2").factors[-1] // _ALIGNED) * _ALIGNED,)


def _sums(call: Call) -> str | None:
    """Complain of a bias of sums of nothing."""
    if call["bias"] is None or not call["out"].size or _matrices(call, "x1").factors[-1]:
        return None
    return "bias: expected null with sums of no terms, got a tensor"


def _oldest_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    first, second, shape, columns = _reader(call, "x1"), _reader(call, "x2"), _shape(call), call["out"].shape[-1]
    scales = () if _is_first(call) else (_FACTOR,)
    one, has_bias = call[_FACTOR], call["bias"] is not None

    def multiply(x1: Any, x2: Any, *further: Any) -> Any:
        total = integer_product(first(x1), second(x2), shape) + (further[0] if has_bias else 0)
        factors, _ = product_scale(further[-1][:columns] if scales else scale_bits(one))
        return total * factors

    return Library(multiply, ("x1", "x2", *(("bias",) if has_bias else ()), *scales), ("out",))


def _is_first(call: Call) -> bool:
    return call.operator.name == "quant_matmul"


def _oldest(name: str) -> Operator:
    """Declare one of the two functions before scales of FLOAT."""
    is_first = name == "quant_matmul"
    tensors = ("x1", "x2", *(() if is_first else (_FACTOR,)), "out")
    flags = [attribute(f"adj{each}", Kind.BOOL, f"{each.lower()} is taken transposed") for each in ("X1", "X2")]
    scale = (
        attribute(_FACTOR, Kind.FLOAT, "the factor, of which 19 bits count")
        if is_first
        else tensor_in(_FACTOR, "the factors of columns, as aclnnTransQuantParam makes them")
    )
    return Operator(
        name=name,
        summary="Multiply matrices of INT8 and scale the products.",
        formula="out = (x1 @ x2 + bias) * deqScale",
        parameters=(
            tensor_in("x1", "the left operand"),
            tensor_in("x2", "the right operand"),
            optional_in("bias", "what is added to each row; INT32"),
            scale,
            *(() if is_first else flags),
            tensor_out("out", "the result; FLOAT16"),
        ),
        support=support({D.INT8}, A2_CLASS),
        checks=(
            dtype_in({D.INT8}, "x1", "x2"),
            dtype_in({D.INT32}, "bias"),
            *(() if is_first else (dtype_in({D.UINT64}, _FACTOR),)),
            dtype_in({D.FLOAT16}, "out"),
            public_format(*tensors, "bias"),
            dims_between(2, 3, "x1", "x2"),
            rule("as many rows as x1 has columns: x2", _inner),
            rule("leading dimensions that broadcast: x2", _batches),
            shape_is("a row of the product", lambda call: _shape(call)[-1:], "bias"),
            shape_is("that of the product", _shape, "out"),
            *(() if is_first else (shape_is("room for whole blocks", _room, _FACTOR),)),
            rule("terms with a bias: bias", _sums),
            *with_code(ACLNN_ERR_RUNTIME_ERROR, KERNEL_OF_THE_PRODUCT),
        ),
        work=_oldest_work,
        stream_type="const aclrtStream ",
        in_header_of="quant_matmul",
    )


OPERATORS = (
    *(_oldest(name) for name in ("quant_matmul", "quant_matmul_v2")),
    _operator("quant_matmul_v3", rows=False),
    _operator("quant_matmul_v4"),
    _operator("quant_matmul_v5", *on(CLASS_950, one_of("groupSize", 0)), code=ACLNN_ERR_PARAM_NULLPTR),
    _operator(
        _IN_BLOCKS,
        one_of("groupSize", 0),
        *on(CLASS_950, format_is(Format.FORMAT_FRACTAL_NZ, "x2")),
        code=ACLNN_ERR_PARAM_INVALID,
        mx=(format_is(Format.FORMAT_FRACTAL_NZ, "x2"),),
    ),
)
