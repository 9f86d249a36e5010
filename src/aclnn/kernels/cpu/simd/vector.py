"""Sixteen lanes as one Numba value, on every machine: of float32, or of float64 (``DOUBLES``).

LLVM splits a ``<16 x float>`` into the target's registers: one of AVX-512, two of AVX2, four of SSE or NEON. Kernels
are written once over sixteen lanes, so their order of operations, and every bit of their results, is the same
everywhere, including reductions. LLVM may neither reassociate nor contract arithmetic here.

The functions of formulas also work on ``WIDE`` times as many lanes, which LLVM splits into several registers: the
latency of one register's dependency chain is then filled by the others.

Inside compiled functions ``+ - * /``, comparisons and ``& | ^ ~ << >>`` work on vectors of equal type, and between a
vector and a number, which is converted to the lanes' type. Shifts of integer lanes are logical.
Comparisons are false for NaN, ``!=`` is true. Addresses are ordinary integers (int64); a load or store needs no
alignment except ``stream``. Compiled by Numba without its process-wide settings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, lower_cast, models, register_model

from aclnn.kernels.cpu import jit, target

LANES = 16
WIDE = 4
"""Number of vectors in a wide one (docs/tuning.md)."""

_INT1, _INT32, _INT64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_FLOAT, _DOUBLE = ir.FloatType(), ir.DoubleType()


class Vector(types.Type):
    """Numba type of a vector."""

    def __init__(self, name: str, lane: ir.Type, lanes: int) -> None:
        super().__init__(name)
        self.llvm = ir.VectorType(lane, lanes)
        self.lane, self.lanes = lane, lanes


_NAMES = {_FLOAT: "float32", _INT32: "int32", _DOUBLE: "float64", _INT64: "int64", _INT1: "mask"}
VECTORS = {
    (lane, lanes): Vector(f"{name}x{lanes}", lane, lanes)
    for lane, name in _NAMES.items()
    for lanes in (LANES, WIDE * LANES)
}
FLOATS, INTS, DOUBLES, LONGS, MASK = (VECTORS[lane, LANES] for lane in _NAMES)
WIDE_FLOATS = VECTORS[_FLOAT, WIDE * LANES]
_SCALARS = {_FLOAT: types.float32, _INT32: types.int32, _DOUBLE: types.float64, _INT64: types.int64}
_REALS, _INTEGERS = (_FLOAT, _DOUBLE), (_INT32, _INT64)


def has_lanes(kind: types.Type, lane: ir.Type) -> bool:
    """Return True for a type of vectors with such lanes, wide or not."""
    return isinstance(kind, Vector) and kind.lane == lane


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.llvm)


def constants(lane: ir.Type, values: Iterable[float]) -> ir.Constant:
    """Return a vector of constants."""
    entries = [lane(value) for value in values]
    return ir.Constant(ir.VectorType(lane, len(entries)), entries)


def constant_splat(lane: ir.Type, value: float, lanes: int = LANES) -> ir.Constant:
    """Return a vector with a constant in every lane."""
    return constants(lane, [value] * lanes)


def shuffled(builder: ir.IRBuilder, lanes: Iterable[int], first: ir.Value, second: ir.Value | None = None) -> ir.Value:
    """Return the lanes with these indices in a vector, or in two concatenated vectors."""
    second = ir.Constant(first.type, ir.Undefined) if second is None else second
    return builder.shuffle_vector(first, second, constants(_INT32, lanes))


def broadcast(builder: ir.IRBuilder, scalar: ir.Value, lanes: int = LANES) -> ir.Value:
    """Broadcast a scalar to every lane."""
    nothing = ir.Constant(ir.VectorType(scalar.type, lanes), ir.Undefined)
    return shuffled(builder, [0] * lanes, builder.insert_element(nothing, scalar, _INT32(0)))


@lower_cast(types.Number, Vector)
def _in_lanes(context: Any, builder: ir.IRBuilder, kind: types.Type, wanted: Vector, value: ir.Value) -> ir.Value:
    """Convert a number to the lane type and broadcast it."""
    return broadcast(builder, context.cast(builder, value, kind, _SCALARS[wanted.lane]), wanted.lanes)


def _operands(args: tuple[types.Type, ...]) -> Vector | None:
    """Return the vector type of operands, where scalars may be mixed with vectors of floats or integers."""
    vectors = {kind for kind in args if isinstance(kind, Vector)}
    if len(vectors) != 1:
        return None
    (wanted,) = vectors
    scalars = [kind for kind in args if not isinstance(kind, Vector)]
    allowed = types.Number if wanted.lane in _REALS else types.Integer
    if scalars and (wanted.lane == _INT1 or not all(isinstance(kind, allowed) for kind in scalars)):
        return None
    return wanted


def _define(function: Any, emit: dict[ir.Type, Callable[..., ir.Value]], result: ir.Type | None, arity: int) -> None:
    """Define an operator on vectors; ``emit`` makes the instruction, by the operands' lane type."""

    class Template(AbstractTemplate):
        #: Preferred to Numba's own templates, the last of which searches for a NumPy function, which takes long.
        metadata = {"target": "cpu"}  # noqa: RUF012  (Numba's)

        def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Any:
            wanted = _operands(args) if len(args) == arity and not kws else None
            if wanted is None or wanted.lane not in emit:
                return None
            return signature(VECTORS[result or wanted.lane, wanted.lanes], *[wanted] * arity)

    infer_global(function)(Template)

    @lower_builtin(function, *[Vector] * arity)
    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return emit[sig.args[0].lane](builder, *args)


def _compare(symbol: str) -> dict[ir.Type, Callable[..., ir.Value]]:
    compare_floats = ir.IRBuilder.fcmp_unordered if symbol == "!=" else ir.IRBuilder.fcmp_ordered
    return dict.fromkeys(_REALS, lambda builder, a, b: compare_floats(builder, symbol, a, b)) | dict.fromkeys(
        _INTEGERS, lambda builder, a, b: builder.icmp_signed(symbol, a, b)
    )


for _function, _on_reals, _on_integers, _on_masks in (
    (operator.add, ir.IRBuilder.fadd, ir.IRBuilder.add, None),
    (operator.sub, ir.IRBuilder.fsub, ir.IRBuilder.sub, None),
    (operator.mul, ir.IRBuilder.fmul, ir.IRBuilder.mul, None),
    (operator.truediv, ir.IRBuilder.fdiv, None, None),
    (operator.and_, None, ir.IRBuilder.and_, ir.IRBuilder.and_),
    (operator.or_, None, ir.IRBuilder.or_, ir.IRBuilder.or_),
    (operator.xor, None, ir.IRBuilder.xor, ir.IRBuilder.xor),
    (operator.lshift, None, ir.IRBuilder.shl, None),
    (operator.rshift, None, ir.IRBuilder.lshr, None),
):
    _emits = dict.fromkeys(_REALS, _on_reals) | dict.fromkeys(_INTEGERS, _on_integers) | {_INT1: _on_masks}
    _define(_function, {lane: emit for lane, emit in _emits.items() if emit is not None}, None, arity=2)

for _function, _symbol in {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}.items():  # fmt: skip
    _define(_function, _compare(_symbol), _INT1, arity=2)

_define(operator.neg, dict.fromkeys(_REALS, ir.IRBuilder.fneg), None, arity=1)
_define(operator.invert, dict.fromkeys((*_INTEGERS, _INT1), ir.IRBuilder.not_), None, arity=1)


def call_llvm(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic by its full name."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return builder.call(function, args)


def unlikely(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return True if any bit of a mask is set; LLVM should not expect it.

    So the code for that case does not take registers from the common path.
    """
    whole = ir.IntType(mask.type.count)
    found = builder.icmp_unsigned("!=", builder.bitcast(mask, whole), whole(0))
    return call_llvm(builder, "llvm.expect.i1", _INT1, found, _INT1(0))


def pieces(builder: ir.IRBuilder, vector: ir.Value, width: int) -> list[ir.Value]:
    """Split a vector into consecutive vectors of ``width`` lanes."""
    return [shuffled(builder, range(start, start + width), vector) for start in range(0, vector.type.count, width)]


def joined(builder: ir.IRBuilder, pieces: list[ir.Value]) -> ir.Value:
    """Concatenate vectors."""
    while len(pieces) > 1:
        lanes = range(2 * pieces[0].type.count)
        pieces = [shuffled(builder, lanes, *pieces[i : i + 2]) for i in range(0, len(pieces), 2)]
    return pieces[0]


def by_halves(builder: ir.IRBuilder, vector: ir.Value, combine: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """Combine halves of a vector until one lane is left, in a fixed tree."""
    while vector.type.count > 1:
        vector = combine(*pieces(builder, vector, vector.type.count // 2))
    return builder.extract_element(vector, _INT32(0))


def _lanes_of(value: Any) -> Any:
    wanted = INTS if isinstance(value, types.Integer) else FLOATS
    return wanted(wanted) if isinstance(value, types.Number) else None


@jit.generic(_lanes_of)
def splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Broadcast a number: FLOATS of a float, INTS of an integer."""
    return value


def multiply_add(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """Emit ``fma`` as an instruction."""
    return call_llvm(builder, f"llvm.fma.{_suffix(a.type)}", a.type, a, b, c)


def _suffix(vector: ir.VectorType) -> str:
    """Return the type suffix of LLVM intrinsics for a vector of floats."""
    return f"v{vector.count}f{32 if vector.element == _FLOAT else 64}"


def _of_reals(*given: Any) -> Any:
    wanted = _operands(given)
    return wanted(*[wanted] * len(given)) if wanted is not None and wanted.lane in _REALS else None


@jit.generic(_of_reals, 3)
def fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """``a·b + c`` with one rounding; each operand is a vector or a number."""
    return multiply_add(builder, a, b, c)


@jit.generic(_of_reals, 1)
def absolute(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Clear the sign bit (NaN stays NaN)."""
    return call_llvm(builder, f"llvm.fabs.{_suffix(value.type)}", value.type, value)


def _choice(mask: Any, chosen: Any, otherwise: Any) -> Any:
    wanted = _operands((chosen, otherwise))
    if wanted is None or mask is not VECTORS[_INT1, wanted.lanes]:
        return None
    return wanted(mask, wanted, wanted)


@jit.generic(_choice)
def select(builder: ir.IRBuilder, mask: ir.Value, chosen: ir.Value, otherwise: ir.Value) -> ir.Value:
    """Select ``chosen`` where the mask is set, else ``otherwise``; one of them may be a number."""
    return builder.select(mask, chosen, otherwise)


@jit.generic(lambda mask: types.boolean(mask) if has_lanes(mask, _INT1) else None)
def any_lane(builder: ir.IRBuilder, mask: ir.Value) -> ir.Value:
    """Return True if the mask is set in any lane."""
    whole = ir.IntType(mask.type.count)
    return builder.icmp_unsigned("!=", builder.bitcast(mask, whole), whole(0))


def above(builder: ir.IRBuilder, value: ir.Value, bound: ir.Value, width: int) -> ir.Value:
    """Return True if a lane exceeds a bound, as unsigned integers in registers of ``width`` lanes; see ``unlikely``.

    Unlike comparisons, maxima do not use the multiplication pipes (Zen 4).
    """
    largest, *others = pieces(builder, value, width)
    for other in others:
        largest = call_llvm(builder, f"llvm.umax.v{width}i{bound.type.width}", largest.type, largest, other)
    return unlikely(builder, builder.icmp_unsigned(">", largest, broadcast(builder, bound, width)))


def _integers_and_bound(value: Any, bound: Any) -> Any:
    return types.boolean(value, types.int32) if has_lanes(value, _INT32) and isinstance(bound, types.Integer) else None


@jit.generic(_integers_and_bound)
def any_above(builder: ir.IRBuilder, value: ir.Value, bound: ir.Value) -> ir.Value:
    """Return True if a non-negative integer exceeds a bound in any lane, which is unlikely."""
    return above(builder, value, bound, LANES)


@jit.generic(lambda value: types.boolean(value) if has_lanes(value, _INT32) else None)
def any_negative(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return True if an integer is negative in any lane, which is unlikely."""
    first, *others = pieces(builder, value, LANES)
    for other in others:
        first = builder.or_(first, other)
    return unlikely(builder, builder.icmp_signed("<", first, ir.Constant(first.type, None)))


@jit.generic(lambda value, chosen, otherwise: value(value, value, value) if has_lanes(value, _FLOAT) else None)
def where_negative(
    context: Any, builder: ir.IRBuilder, value: ir.Value, chosen: ir.Value, otherwise: ir.Value
) -> ir.Value:
    """Select ``chosen`` where the value's sign bit is set, else ``otherwise``.

    By bit operations on AVX-512: on Zen 4 a mask uses the multiplication pipes, which are a kernel's bottleneck.
    """
    parts = zip(*(pieces(builder, vector, LANES) for vector in (value, chosen, otherwise)), strict=True)
    return joined(builder, [_where_negative(context, builder, *part) for part in parts])


def _where_negative(
    context: Any, builder: ir.IRBuilder, value: ir.Value, chosen: ir.Value, otherwise: ir.Value
) -> ir.Value:
    patterns = [builder.bitcast(vector, INTS.llvm) for vector in (value, chosen, otherwise)]
    if target.flavour(context) != "avx512":
        return builder.select(builder.icmp_signed("<", patterns[0], ir.Constant(INTS.llvm, None)), chosen, otherwise)
    sign = apart(builder, builder.ashr(patterns[0], constant_splat(_INT32, 31)))
    both = builder.or_(builder.and_(sign, patterns[1]), builder.and_(builder.not_(sign), patterns[2]))
    return builder.bitcast(both, FLOATS.llvm)


def apart(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Return the value in a vector register, opaque to LLVM, which then does not merge instructions across it."""
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=v,0", [value], False)


def _reinterpreted(lanes: dict[ir.Type, ir.Type], doc: str) -> Any:
    """Make a function that reinterprets the bits of vectors as other lanes."""

    def typed(value: Any) -> Any:
        return VECTORS[lanes[value.lane], value.lanes](value) if getattr(value, "lane", None) in lanes else None

    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return builder.bitcast(value, ir.VectorType(lanes[value.type.element], value.type.count))

    return jit.generic(typed, doc=doc)(emit)


bits = _reinterpreted({_FLOAT: _INT32, _DOUBLE: _INT64}, "The bit patterns of FLOATS as INTS, of DOUBLES as LONGS.")
from_bits = _reinterpreted({_INT32: _FLOAT, _INT64: _DOUBLE}, "The FLOATS or DOUBLES with these bit patterns.")


def _lane(value: Any, index: Any) -> Any:
    scalars: dict[Any, Any] = {FLOATS: types.float32, DOUBLES: types.float64, INTS: types.int32, MASK: types.boolean}
    return scalars[value](value, types.int32) if value in scalars and isinstance(index, types.Integer) else None


@jit.generic(_lane)
def lane(builder: ir.IRBuilder, value: ir.Value, index: ir.Value) -> ir.Value:
    """Return one lane of a vector, as float32, float64, int32 or boolean."""
    return builder.extract_element(value, index)


@jit.intrinsic(types.float32, FLOATS)
def total(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Sum the lanes in a fixed tree: halves are added until one lane is left."""
    return by_halves(builder, value, builder.fadd)


def _side_by_side(a: Any, b: Any, c: Any, d: Any) -> Any:
    fits = isinstance(a, Vector) and a.lanes == LANES and {a, b, c, d} == {a}
    return VECTORS[a.lane, WIDE * LANES](a, b, c, d) if fits else None


@jit.generic(_side_by_side)
def side_by_side(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value, d: ir.Value) -> ir.Value:
    """Concatenate four vectors to a wide one."""
    return joined(builder, [a, b, c, d])


def _quarter(number: int) -> Any:
    def typed(value: Any) -> Any:
        fits = isinstance(value, Vector) and value.lanes == WIDE * LANES
        return VECTORS[value.lane, LANES](value) if fits else None

    def emit(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
        return pieces(builder, value, LANES)[number]

    return jit.generic(typed, doc=f"Vector {number} of a wide one.")(emit)


QUARTERS = tuple(map(_quarter, range(WIDE)))
"""Functions that extract each vector from a wide one."""
