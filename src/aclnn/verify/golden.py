"""Golden values: the exact result of the mathematical definition, rounded once to the output's type.

Independent of the kernels and of the operators' own formulas. Every value is first computed in float64 (LayerNorm:
twice that) with a bound on its error; where the bound leaves two candidates, interval arithmetic or rationals decide.
So ``rounded`` is the correctly rounded result of every element, and ``value`` within 2**-8 of a unit of its last place.
Infinite and NaN inputs follow the operators' "Numerics" tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from aclnn.declaration import Operator
from aclnn.kernels.cpu import pool
from aclnn.verify import certified, norm
from aclnn.verify.arguments import arrays_of, operator_named
from aclnn.verify.compiled import compiled
from aclnn.verify.expansions import divide, ends, scale, two_sum
from aclnn.verify.number_formats import NumberFormat, format_of, quiet
from aclnn.verify.slopes import SLOPE_NAMES, SLOPES, bracket

Array = np.ndarray[Any, Any]
T = TypeVar("T")

VALUE_BOUND_ULP = 2.0**-8
"""How far ``value`` may be from the exact result, in units of the output's last place."""


@dataclass(frozen=True)
class Golden:
    """Golden values of some elements, flat."""

    value: Array
    """float64, within VALUE_BOUND_ULP of the exact results."""
    rounded: Array
    """The exact results rounded once to the output's type: at most half a unit of the last place off."""
    settled: int = 0
    """How many elements float64 could not decide, so that intervals or rationals did."""


@quiet
def elementwise(name: str, dy: Array, x: Array, target: NumberFormat) -> Golden:
    """dy·f(x) for flat arrays of any of the three types; ``name`` is a key of SLOPES."""
    dy64, x64 = dy.astype(np.float64), x.astype(np.float64)
    value, bound = np.empty(x64.size), np.empty(x64.size)
    lower, upper = np.empty(x64.size), np.empty(x64.size)
    SLOPES[name](x64, value, bound)
    bracket(dy64, value, bound, lower, upper)
    unsure = _unsure(value, bound, lower, upper, target)
    if unsure.size:
        _settle(name, dy64, x64, target, unsure, value, lower)
    return Golden(value, target.round(lower), unsure.size)


def _unsure(value: Array, bound: Array, lower: Array, upper: Array, target: NumberFormat) -> Array:
    """Where the interval's ends round apart, or are too far apart to give errors in units of the last place."""
    coarse = bound * 2.0 ** (target.digits - math.log2(VALUE_BOUND_ULP)) > np.abs(value)
    coarse &= np.abs(value) >= target.smallest_normal * 2.0 ** (-target.digits - 1)
    apart = target.bits(target.round(lower)) != target.bits(target.round(upper))
    return np.flatnonzero((coarse | apart) & np.isfinite(value))


def _settle(name: str, dy: Array, x: Array, target: NumberFormat, at: Array, value: Array, lower: Array) -> None:
    """Replace ``value`` and ``lower`` at these elements by numbers that round as the exact products do."""
    low, high, middle = np.empty(at.size), np.empty(at.size), np.empty(at.size)
    if name == "hardswish":
        _hardswish_products(dy[at], x[at], low, high, middle)
    else:
        _slope_products(dy[at], *_slopes(name, x[at]), low, high, middle)
    value[at], lower[at] = middle, low
    at = at[target.bits(target.round(low)) != target.bits(target.round(high))]
    known: dict[tuple[float, float], tuple[float, float]] = {}
    for i in at.tolist():
        pair = float(dy[i]), float(x[i])
        if pair not in known:
            known[pair] = certified.product(name, *pair, target)
        rounded, exact = known[pair]
        value[i], lower[i] = exact, math.copysign(rounded, exact)


_RISE_AT_ZERO = {
    "silu": 0.5,
    "fast_gelu": 0.851,
    "gelu_erf": math.sqrt(2.0 / math.pi),
    "gelu_tanh": math.sqrt(2.0 / math.pi),
}
"""Every derivative is 1/2 at 0 and an odd function more around it, of which this is the first coefficient."""
_NEAR_ZERO = 2.0**-30


def _slopes(name: str, x: Array) -> tuple[Array, Array, Array]:
    """The derivatives as sums hi + lo, and how far those may be off.

    Near 0, where half of a subnormal dy lies between two numbers and a tiny x decides, from the first term: one by one
    they would take a tenth of a millisecond each.
    """
    hi, lo = np.full(x.size, 0.5), _RISE_AT_ZERO[name] * x
    off = np.abs(lo) * 2.0**-49
    far = np.flatnonzero(np.abs(x) >= _NEAR_ZERO)
    if far.size:
        points, which = np.unique(x[far], return_inverse=True)
        hi[far], lo[far] = np.array([certified.slope(name, point) for point in points.tolist()])[which.reshape(-1)].T
        off[far] = np.abs(hi[far]) * 2.0**-98
    return hi, lo, off


@compiled
def _slope_products(dy: Array, slope: Array, rest: Array, off: Array, low: Array, high: Array, middle: Array) -> None:
    for i in range(dy.size):
        hi, lo, lost = scale(slope[i], rest[i], dy[i])
        low[i], high[i] = ends(hi, lo, lost + abs(dy[i]) * off[i])
        middle[i] = hi


@compiled
def _hardswish_products(dy: Array, x: Array, low: Array, high: Array, middle: Array) -> None:
    """dy·(2·x + 3) / 6."""
    for i in range(dy.size):
        total, rest = two_sum(2.0 * x[i], 3.0)
        product, product_rest, dropped = scale(total, rest, dy[i])
        hi, lo, lost = divide(product, product_rest, 6.0)
        low[i], high[i] = ends(hi, lo, lost + dropped)
        middle[i] = hi


class Elementwise:
    """Golden values of dy·f(x), block by block; dy and x broadcast and may be larger than memory."""

    def __init__(self, name: str, dy: Array, x: Array, dtype: np.dtype[Any]) -> None:
        self.name = name
        self.target = format_of(dtype)
        self.shape = np.broadcast_shapes(dy.shape, x.shape)
        self.size = math.prod(self.shape)
        self._dy, self._x = (Flat(np.broadcast_to(array, self.shape)) for array in (dy, x))

    def inputs(self, begin: int, end: int) -> tuple[Array, Array]:
        """dy and x of some elements in row-major order."""
        return self._dy[begin:end], self._x[begin:end]

    def block(self, begin: int, end: int) -> Golden:
        """Golden values of some elements in row-major order."""
        return elementwise(self.name, *self.inputs(begin, end), self.target)


class Flat:
    """Slices of an array in row-major order, without a copy of the whole."""

    def __init__(self, array: Array) -> None:
        self._items: Any = array.reshape(-1) if array.flags.c_contiguous else array.flat

    def __getitem__(self, part: slice) -> Array:
        return np.asarray(self._items[part])


class LayerNorm:
    """Golden gradients of LayerNorm, by blocks of rows; dy and x (M·N elements) may be larger than memory.

    With ``eps`` mean and rstd are not taken as given but those of x, in float64: forward and backward in cascade.
    """

    def __init__(
        self,
        dy: Array,
        x: Array,
        mean: Array,
        rstd: Array,
        weight: Array | None,
        columns: int,
        eps: float | None = None,
    ) -> None:
        self.columns = columns
        self.rows = x.size // columns if columns else 0
        self.size = self.rows * columns
        self._dy, self._x = Flat(dy), Flat(x)
        self._mean, self._rstd = (np.asarray(a).reshape(-1).astype(np.float64) for a in (mean, rstd))
        self._weight = np.ones(columns) if weight is None else np.asarray(weight).reshape(-1).astype(np.float64)
        self._eps = eps

    @quiet
    def inputs(self, begin: int, end: int) -> tuple[Array, Array]:
        """dy and x of rows begin to end, each (rows, N), in float64."""
        part = slice(begin * self.columns, end * self.columns)
        shape = end - begin, self.columns
        return self._dy[part].reshape(shape).astype(np.float64), self._x[part].reshape(shape).astype(np.float64)

    @quiet
    def _statistics(self, begin: int, end: int, x: Array) -> tuple[Array, Array]:
        if self._eps is None:
            return self._mean[begin:end], self._rstd[begin:end]
        mean = x.mean(axis=1)
        return mean, 1.0 / np.sqrt(np.square(x - mean[:, None]).mean(axis=1) + self._eps)

    @quiet
    def block(self, begin: int, end: int, target: NumberFormat) -> Golden:
        """dx of rows begin to end, flat."""
        dy, x = self.inputs(begin, end)
        mean, rstd = self._statistics(begin, end, x)
        value, lower, upper = np.empty(x.shape), np.empty(x.shape), np.empty(x.shape)
        norm.input_gradient(x, dy, mean, rstd, self._weight, value, lower, upper)
        apart = target.bits(target.round(lower)) != target.bits(target.round(upper))
        unsure = np.argwhere(apart & np.isfinite(value))
        for i in np.unique(unsure[:, 0]).tolist():
            at = unsure[unsure[:, 0] == i, 1].tolist()
            exact = norm.exact_dx(x[i], dy[i], float(mean[i]), float(rstd[i]), self._weight, at)
            lower[i, at] = [target.round_exact(item) for item in exact]
            value[i, at] = [float(item) for item in exact]
        return Golden(value.reshape(-1), target.round(lower).reshape(-1), len(unsure))

    def sums(self, begin: int, end: int) -> tuple[Array, Array]:
        """What rows begin to end add to dw and db: (4, N) each, for ``columns_golden``."""
        dy, x = self.inputs(begin, end)
        mean, rstd = self._statistics(begin, end, x)
        dw, db = np.zeros((4, self.columns)), np.zeros((4, self.columns))
        norm.column_sums(x, dy, mean, rstd, dw, db)
        return dw, db

    def all_sums(self) -> tuple[Array, Array]:
        """The same of all rows, block by block."""
        totals = np.zeros((4, self.columns)), np.zeros((4, self.columns))
        step = max(1, BLOCK_ELEMENTS // max(1, self.columns))
        for begin in range(0, self.rows, step):
            for total, part in zip(totals, self.sums(begin, min(begin + step, self.rows)), strict=True):
                norm.merge_sums(total, part)
        return totals

    def columns_golden(self, total: Array, target: NumberFormat, bias: bool) -> Golden:
        """dw (or db) from the merged sums of all rows."""
        value, lower, upper = np.empty(self.columns), np.empty(self.columns), np.empty(self.columns)
        norm.column_ends(total, value, lower, upper)
        apart = target.bits(target.round(lower)) != target.bits(target.round(upper))
        unsure = np.flatnonzero(apart & np.isfinite(value))
        for j in unsure.tolist():
            exact = self._exact_column(j, bias)
            lower[j], value[j] = target.round_exact(exact), float(exact)
        return Golden(value, target.round(lower), unsure.size)

    @quiet
    def _exact_column(self, j: int, bias: bool) -> Any:
        every = slice(j, self.size, self.columns)
        dy = self._dy[every].astype(np.float64)
        if bias:
            return norm.exact_db(dy)
        x = self._x[every].astype(np.float64)
        mean, rstd = self._mean, self._rstd
        if self._eps is not None:
            parts = [self._statistics(i, i + 1, self.inputs(i, i + 1)[1]) for i in range(self.rows)]
            mean, rstd = (np.concatenate(column) for column in zip(*parts, strict=True))
        return norm.exact_dw(x, dy, mean, rstd)


BLOCK_ELEMENTS = 1 << 18
"""Elements of a block: float64 temporaries of 2 MB, so a dozen of them stay near the cache."""


def in_order(function: Callable[[int, int], T], size: int, step: int) -> Iterator[T]:
    """``function(begin, end)`` over [0, size) in steps, on as many threads as the kernels use, results in order."""
    if 0 < size <= step:  # starting threads takes longer
        yield function(0, size)
        return
    ranges = ((begin, min(begin + step, size)) for begin in range(0, size, step))
    threads = pool.shared().threads
    with ThreadPoolExecutor(threads) as workers:
        pending = []
        for begin, end in ranges:
            pending.append(workers.submit(function, begin, end))
            if len(pending) > 2 * threads:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()


Progress = Callable[[float], None]


def golden(
    operator: str,
    inputs: Mapping[str, Any],
    dtype: Any = None,
    progress: Progress | None = None,
    approximate: str | None = None,
    normalized_shape: Sequence[int] | None = None,
) -> dict[str, Golden]:
    """Golden values of every output of an operator.

    Args:
        operator: a name such as silu_backward.
        inputs: NumPy arrays or torch tensors by C or Python name: grad_output, self (broadcast to one shape); for
            layer_norm_backward grad_out, input, mean, rstd and, where there is one, weight.
        dtype: of the outputs; by default that of the input (its promotion with the gradient where they differ).
        progress: called with the fraction done.
        approximate: gelu_backward_v2's mode, "none" or "tanh".
        normalized_shape: layer_norm_backward's; the last dimension by default.

    Returns:
        By output: grad_input (hardswish_backward: out), for layer_norm_backward also grad_weight and grad_bias; shaped
        like the outputs.

    Raises:
        ValueError: another operator, a mode that it does not have, an unknown name, a name twice, an input that is not
            there, or shapes that do not fit together.
        TypeError: outputs of another type than float32, float16 and bfloat16.
    """
    try:
        found = operator_named(operator)
        given = arrays_of(found, inputs)
        if found.name == "layer_norm_backward":
            return _golden_norm(given, dtype, progress, normalized_shape)
        return _golden_activation(found, given, dtype, progress, approximate)
    except ValueError as error:
        raise ValueError(f"golden: {error}") from error


def _golden_activation(
    operator: Operator, inputs: Mapping[str, Array], dtype: Any, progress: Progress | None, approximate: str | None
) -> dict[str, Golden]:
    modes = [mode for name, mode in SLOPE_NAMES if name == operator.name]
    if approximate not in modes:
        expected = " or ".join(map(repr, modes))
        raise ValueError(f"{operator.name}: approximate: expected {expected}, got {approximate!r}")
    dy, x = _given(operator.name, inputs, "grad_output", "self")
    target = np.dtype(dtype or (x.dtype if x.dtype == dy.dtype else np.float32))
    try:
        whole = Elementwise(SLOPE_NAMES[operator.name, approximate], dy, x, target)
    except ValueError:
        shapes = f"{list(dy.shape)} and {list(x.shape)}"
        raise ValueError(f"{operator.name}: expected shapes that broadcast to one, got {shapes}") from None
    blocks = list(_counted(in_order(whole.block, whole.size, BLOCK_ELEMENTS), whole.size, progress))
    return {operator.outputs[0].python_name: _joined(blocks, whole.shape, target)}


def _given(operator: str, inputs: Mapping[str, Array], *names: str) -> list[Array]:
    missing = [name for name in names if name not in inputs]
    if missing:
        raise ValueError(f"{operator}: expected inputs {', '.join(names)}, got none for {', '.join(missing)}")
    return [inputs[name] for name in names]


def _golden_norm(
    inputs: Mapping[str, Array], dtype: Any, progress: Progress | None, normalized_shape: Sequence[int] | None
) -> dict[str, Golden]:
    dy, x, mean, rstd = _given("layer_norm_backward", inputs, "grad_out", "input", "mean", "rstd")
    weight = inputs.get("weight")
    shape = tuple(x.shape[-1:] if normalized_shape is None else normalized_shape)
    _expect_norm_shapes(inputs, shape)
    whole = LayerNorm(dy, x, mean, rstd, weight, math.prod(shape))
    target = np.dtype(dtype or x.dtype)
    narrow = np.dtype(dtype or (x.dtype if weight is None else weight.dtype))
    step = max(1, BLOCK_ELEMENTS // max(1, whole.columns))

    def block(begin: int, end: int) -> tuple[Golden, Array, Array]:
        return whole.block(begin, end, format_of(target)), *whole.sums(begin, end)

    dw, db = np.zeros((4, whole.columns)), np.zeros((4, whole.columns))
    blocks = []
    for dx, dw_part, db_part in _counted(in_order(block, whole.rows, step), whole.size, progress):
        blocks.append(dx)
        norm.merge_sums(dw, dw_part)
        norm.merge_sums(db, db_part)
    return {
        "grad_input": _joined(blocks, x.shape, target),
        "grad_weight": _joined([whole.columns_golden(dw, format_of(narrow), False)], shape, narrow),
        "grad_bias": _joined([whole.columns_golden(db, format_of(narrow), True)], shape, narrow),
    }


def _expect_norm_shapes(inputs: Mapping[str, Array], shape: tuple[int, ...]) -> None:
    """The compiled sums look at no bounds: what does not fit would be read from foreign memory."""
    whole = inputs["input"].shape
    split = len(whole) - len(shape)
    if not shape or split < 0 or whole[split:] != shape:
        text = f"expected the last dimensions of input's {list(whole)}, got {list(shape)}"
        raise ValueError(f"layer_norm_backward: normalized_shape: {text}")
    rows = math.prod(whole[:split])
    one_each = f"{rows} elements, one for each row"
    weight_fits = "weight" not in inputs or inputs["weight"].size == math.prod(shape)
    for name, fits, expected in (
        ("grad_out", inputs["grad_out"].shape == whole, f"shape {list(whole)}"),
        ("mean", inputs["mean"].size == rows, one_each),
        ("rstd", inputs["rstd"].size == rows, one_each),
        ("weight", weight_fits, f"shape {list(shape)}"),
    ):
        if not fits:
            raise ValueError(f"layer_norm_backward: {name}: expected {expected}, got {list(inputs[name].shape)}")


def _counted(blocks: Iterator[T], size: int, progress: Progress | None) -> Iterator[T]:
    done = 0
    for block in blocks:
        first = block[0] if isinstance(block, tuple) else block
        done += first.value.size if isinstance(first, Golden) else 0
        if progress is not None and size:
            progress(done / size)
        yield block


def _joined(blocks: Sequence[Golden], shape: Sequence[int], dtype: np.dtype[Any]) -> Golden:
    value = np.concatenate([np.empty(0), *(block.value for block in blocks)])
    rounded = np.concatenate([np.empty(0, dtype), *(block.rounded for block in blocks)])
    return Golden(value.reshape(shape), rounded.reshape(shape), sum(block.settled for block in blocks))
