"""Sixteen float32 lanes as one Numba value, on every machine.

LLVM cuts a ``<16 x float>`` into whatever the target has: one AVX-512 register, two of AVX2, four of SSE or NEON.
Kernels are written once over sixteen lanes, so their order of operations, and with it every bit they produce, is the
same everywhere, reductions included. Nothing here permits LLVM to reassociate or contract arithmetic.

Inside compiled functions ``+ - * /``, comparisons and ``& | ^ ~ << >>`` work on vectors of equal type, and between a
vector and a Python constant, which is rounded to float32 (integers stay integers). Shifts of integer lanes are logical.
Comparisons are false for NaN, ``!=`` is true. Addresses are ordinary integers (int64); a load or store needs no
alignment except ``stream``. Compiled by Numba without its process-wide settings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.imputils import lower_constant
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model, typeof_impl

from aclnn.kernels.cpu import target

LANES = 16

_INT1, _INT8, _INT16, _INT32, _INT64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_HALF, _FLOAT = ir.HalfType(), ir.FloatType()


class Vector(types.Type):
    """Numba's type of sixteen lanes."""

    def __init__(self, name: str, lane: ir.Type) -> None:
        super().__init__(name)
        self.llvm = ir.VectorType(lane, LANES)


FLOATS = Vector("float32x16", _FLOAT)
INTS = Vector("int32x16", _INT32)
MASK = Vector("maskx16", _INT1)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        super().__init__(manager, kind, kind.llvm)


# --- operators -------------------------------------------------------------------------------------------------------


def _constant_splat(lane: ir.Type, value: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(lane, LANES), [ir.Constant(lane, value)] * LANES)


def _broadcast(builder: ir.IRBuilder, scalar: ir.Value) -> ir.Value:
    """A scalar in every lane."""
    vector = ir.VectorType(scalar.type, LANES)
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, _INT32(0))
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), _constant_splat(_INT32, 0))


def _widen(context: Any, builder: ir.IRBuilder, value: ir.Value, kind: types.Type, wanted: Vector) -> ir.Value:
    """The operand as a vector: scalars are converted to the lane type and put in every lane."""
    if isinstance(kind, Vector):
        return value
    scalar = types.float32 if wanted is FLOATS else types.int32
    return _broadcast(builder, context.cast(builder, value, kind, scalar))


def _operands(args: tuple[types.Type, ...]) -> Vector | None:
    """The vector type that two operands share, a scalar number going with FLOATS or INTS."""
    vectors = {kind for kind in args if isinstance(kind, Vector)}
    if len(vectors) != 1:
        return None
    (wanted,) = vectors
    scalars = [kind for kind in args if not isinstance(kind, Vector)]
    allowed = {FLOATS: types.Number, INTS: types.Integer}.get(wanted)
    if scalars and (allowed is None or not all(isinstance(kind, allowed) for kind in scalars)):
        return None
    return wanted


def _define(function: Any, emit: dict[Vector, Callable[..., ir.Value]], result: Vector | None, arity: int) -> None:
    """Give an operator its meaning on vectors; ``emit`` makes the instruction, by operand type."""

    class Template(AbstractTemplate):
        def generic(self, args: tuple[types.Type, ...], kws: dict[str, types.Type]) -> Any:
            wanted = _operands(args) if len(args) == arity and not kws else None
            return signature(result or wanted, *args) if wanted in emit else None

    infer_global(function)(Template)

    def lower(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        wanted = _operands(sig.args)
        assert wanted is not None
        widened = [_widen(context, builder, *pair, wanted) for pair in zip(args, sig.args, strict=True)]
        return emit[wanted](builder, *widened)

    shapes = [(Vector,)] if arity == 1 else [(Vector, Vector), (Vector, types.Number), (types.Number, Vector)]
    for shape in shapes:
        lower_builtin(function, *shape)(lower)


def _compare(symbol: str) -> dict[Vector, Callable[..., ir.Value]]:
    compare_floats = ir.IRBuilder.fcmp_unordered if symbol == "!=" else ir.IRBuilder.fcmp_ordered
    return {
        FLOATS: lambda builder, a, b: compare_floats(builder, symbol, a, b),
        INTS: lambda builder, a, b: builder.icmp_signed(symbol, a, b),
    }


for _function, _emit in {
    operator.add: {FLOATS: ir.IRBuilder.fadd, INTS: ir.IRBuilder.add},
    operator.sub: {FLOATS: ir.IRBuilder.fsub, INTS: ir.IRBuilder.sub},
    operator.mul: {FLOATS: ir.IRBuilder.fmul, INTS: ir.IRBuilder.mul},
    operator.truediv: {FLOATS: ir.IRBuilder.fdiv},
    operator.and_: dict.fromkeys((INTS, MASK), ir.IRBuilder.and_),
    operator.or_: dict.fromkeys((INTS, MASK), ir.IRBuilder.or_),
    operator.xor: dict.fromkeys((INTS, MASK), ir.IRBuilder.xor),
    operator.lshift: {INTS: ir.IRBuilder.shl},
    operator.rshift: {INTS: ir.IRBuilder.lshr},
}.items():
    _define(_function, _emit, None, arity=2)

for _function, _symbol in {
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}.items():  # fmt: skip
    _define(_function, _compare(_symbol), MASK, arity=2)

_define(operator.neg, {FLOATS: ir.IRBuilder.fneg}, None, arity=1)
_define(operator.invert, dict.fromkeys((INTS, MASK), ir.IRBuilder.not_), None, arity=1)


# --- lanes -----------------------------------------------------------------------------------------------------------


def call_llvm(builder: ir.IRBuilder, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
    """Call an LLVM intrinsic by its full name."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        function = ir.Function(module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return builder.call(function, args)


@intrinsic
def splat(typingctx: Any, value: Any) -> Any:
    """A number in every lane: FLOATS of a float, INTS of an integer."""
    wanted = INTS if isinstance(value, types.Integer) else FLOATS

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _widen(context, builder, args[0], sig.args[0], wanted)

    return wanted(value), emit


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a·b + c`` with one rounding; each of the three is a vector or a number."""
    if FLOATS not in (a, b, c):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        widened = [_widen(context, builder, *pair, FLOATS) for pair in zip(args, sig.args, strict=True)]
        return call_llvm(builder, f"llvm.fma.v{LANES}f32", FLOATS.llvm, *widened)

    return FLOATS(a, b, c), emit


@intrinsic
def select(typingctx: Any, mask: Any, chosen: Any, otherwise: Any) -> Any:
    """Lane by lane ``chosen`` where the mask is set, else ``otherwise``; one of the two may be a number."""
    wanted = _operands((chosen, otherwise))
    if mask is not MASK or wanted is None:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        pairs = zip(args[1:], sig.args[1:], strict=True)
        return builder.select(args[0], *(_widen(context, builder, *pair, wanted) for pair in pairs))

    return wanted(mask, chosen, otherwise), emit


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    """True when the mask is set in at least one lane."""
    if mask is not MASK:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return builder.icmp_unsigned("!=", builder.bitcast(args[0], _INT16), _INT16(0))

    return types.boolean(mask), emit


def _reinterpret(source: Vector, result: Vector) -> Callable[..., Any]:
    def typer(typingctx: Any, value: Any) -> Any:
        if value is not source:
            return None
        return result(value), lambda context, builder, sig, args: builder.bitcast(args[0], result.llvm)

    return typer


@intrinsic
def bits(typingctx: Any, value: Any) -> Any:
    """The bit patterns of FLOATS as INTS."""
    return _reinterpret(FLOATS, INTS)(typingctx, value)


@intrinsic
def from_bits(typingctx: Any, value: Any) -> Any:
    """The FLOATS with these bit patterns."""
    return _reinterpret(INTS, FLOATS)(typingctx, value)


@intrinsic
def absolute(typingctx: Any, value: Any) -> Any:
    """The value without its sign bit (NaN stays NaN)."""
    if value is not FLOATS:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return call_llvm(builder, f"llvm.fabs.v{LANES}f32", FLOATS.llvm, args[0])

    return FLOATS(value), emit


@intrinsic
def lane(typingctx: Any, value: Any, index: Any) -> Any:
    """One lane of a vector, as a float32, int32 or boolean."""
    scalars = {FLOATS: types.float32, INTS: types.int32, MASK: types.boolean}
    if value not in scalars or not isinstance(index, types.Integer):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        position = context.cast(builder, args[1], sig.args[1], types.int32)
        return builder.extract_element(args[0], position)

    return scalars[value](value, index), emit


@intrinsic
def with_lane(typingctx: Any, vector: Any, index: Any, value: Any) -> Any:
    """FLOATS with one lane replaced."""
    if vector is not FLOATS or not isinstance(index, types.Integer) or not isinstance(value, types.Number):
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        position = context.cast(builder, args[1], sig.args[1], types.int32)
        return builder.insert_element(args[0], context.cast(builder, args[2], sig.args[2], types.float32), position)

    return FLOATS(vector, index, value), emit


@intrinsic
def total(typingctx: Any, value: Any) -> Any:
    """The sum of the lanes as a float32, always as the same tree: halves are added until one lane is left."""
    if value is not FLOATS:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        part, width = args[0], LANES
        while width > 1:
            width //= 2
            halves = [
                builder.shuffle_vector(
                    part,
                    ir.Constant(part.type, ir.Undefined),
                    ir.Constant(ir.VectorType(_INT32, width), [_INT32(start + i) for i in range(width)]),
                )
                for start in (0, width)
            ]
            part = builder.fadd(*halves)
        return builder.extract_element(part, _INT32(0))

    return types.float32(value), emit


# --- tables ----------------------------------------------------------------------------------------------------------


class Tables:
    """Several tables of 8 or 16: the coefficients of a polynomial, highest power first, for ``horner``."""

    def __init__(self, *rows: tuple[float, ...]) -> None:
        if not rows or any(len(row) not in (8, 16) for row in rows):
            raise ValueError(
                f"{type(self).__name__}: expected rows of 8 or 16 entries, got lengths {[len(row) for row in rows]}"
            )
        self.rows = rows


class Table(Tables):
    """Float32 constants, 8 or 16, that ``lookup`` selects from; they become part of the compiled code."""

    def __init__(self, *entries: float) -> None:
        super().__init__(entries)


class _TablesType(types.Dummy):
    """The entries are in the type, so that code generation sees them."""

    def __init__(self, rows: tuple[tuple[float, ...], ...]) -> None:
        super().__init__(f"tables{rows!r}")
        self.rows = rows


@typeof_impl.register(Table)
@typeof_impl.register(Tables)
def _typeof_tables(value: Table | Tables, context: Any) -> _TablesType:
    return _TablesType(value.rows)


register_model(_TablesType)(models.OpaqueModel)


@lower_constant(_TablesType)
def _lower_tables(context: Any, builder: ir.IRBuilder, kind: _TablesType, value: Table | Tables) -> ir.Value:
    return context.get_dummy_value()


def _pieces(builder: ir.IRBuilder, vector: ir.Value, width: int) -> list[ir.Value]:
    """The vector cut into consecutive vectors of ``width`` lanes."""
    return [
        builder.shuffle_vector(
            vector,
            ir.Constant(vector.type, ir.Undefined),
            ir.Constant(ir.VectorType(_INT32, width), [_INT32(start + i) for i in range(width)]),
        )
        for start in range(0, LANES, width)
    ]


def _joined(builder: ir.IRBuilder, pieces: list[ir.Value]) -> ir.Value:
    """The reverse of ``_pieces``."""
    while len(pieces) > 1:
        width = 2 * pieces[0].type.count
        order = ir.Constant(ir.VectorType(_INT32, width), [_INT32(i) for i in range(width)])
        pieces = [builder.shuffle_vector(*pieces[i : i + 2], order) for i in range(0, len(pieces), 2)]
    return pieces[0]


def _floats(values: list[float]) -> ir.Constant:
    return ir.Constant(ir.VectorType(_FLOAT, len(values)), [_FLOAT(value) for value in values])


def _lookup_avx512(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # The permutation looks at four bits of the index; eight entries twice over make the fourth irrelevant.
    sixteen = _floats(entries * (LANES // len(entries)))
    return call_llvm(builder, "llvm.x86.avx512.permvar.sf.512", FLOATS.llvm, sixteen, index)


def _lookup_avx2(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    eight, table = ir.VectorType(_FLOAT, 8), _floats(entries)
    halves = _pieces(builder, index, 8)
    return _joined(builder, [call_llvm(builder, "llvm.x86.avx2.permps", eight, table, half) for half in halves])


def _lookup_neon(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    # A byte permutation over two registers: lane i needs the bytes 4i, 4i + 1, 4i + 2, 4i + 3.
    sixteen = ir.VectorType(_INT8, 16)
    low, high = (builder.bitcast(_floats(entries[start : start + 4]), sixteen) for start in (0, 4))
    masked = builder.and_(index, _constant_splat(_INT32, 7))
    octets = builder.add(builder.mul(masked, _constant_splat(_INT32, 0x04040404)), _constant_splat(_INT32, 0x03020100))
    found = []
    for quarter in _pieces(builder, octets, 4):
        permuted = call_llvm(
            builder, "llvm.aarch64.neon.tbl2.v16i8", sixteen, low, high, builder.bitcast(quarter, sixteen)
        )
        found.append(builder.bitcast(permuted, ir.VectorType(_FLOAT, 4)))
    return _joined(builder, found)


def _lookup_generic(builder: ir.IRBuilder, entries: list[float], index: ir.Value) -> ir.Value:
    """A tree of selections by the three low bits of the index."""
    choices: list[ir.Value] = [_constant_splat(_FLOAT, entry) for entry in entries]
    for bit in range(3):
        tested = builder.and_(index, _constant_splat(_INT32, 1 << bit))
        is_set = builder.icmp_signed("!=", tested, _constant_splat(_INT32, 0))
        choices = [builder.select(is_set, choices[i + 1], choices[i]) for i in range(0, len(choices), 2)]
    return choices[0]


_LOOKUPS = {"avx512": _lookup_avx512, "avx2": _lookup_avx2, "neon": _lookup_neon, "generic": _lookup_generic}


def _lookup(context: Any, builder: ir.IRBuilder, entries: tuple[float, ...], index: ir.Value) -> ir.Value:
    flavour = target.flavour(context)
    find = _LOOKUPS[flavour]
    if flavour == "avx512" or len(entries) == 8:
        return find(builder, list(entries), index)
    first, second = (find(builder, list(entries[start : start + 8]), index) for start in (0, 8))
    fourth_bit = builder.and_(index, _constant_splat(_INT32, 8))
    return builder.select(builder.icmp_signed("!=", fourth_bit, _constant_splat(_INT32, 0)), second, first)


@intrinsic
def sixteen_at_once(typingctx: Any) -> Any:
    """Whether a look-up among 16 entries costs no more than one among 8; a constant of the target."""

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return ir.Constant(ir.IntType(1), target.flavour(context) == "avx512")

    return types.boolean(), emit


@intrinsic
def lookup(typingctx: Any, table: Any, index: Any) -> Any:
    """Entry ``index & 7`` or ``index & 15`` of a table for each lane; every flavour gives the same bits."""
    if not isinstance(table, _TablesType) or len(table.rows) != 1 or index is not INTS:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        return _lookup(context, builder, table.rows[0], args[1])

    return FLOATS(table, index), emit


@intrinsic
def horner(typingctx: Any, tables: Any, index: Any, r: Any) -> Any:
    """The polynomial in r whose coefficients are each lane's entries of ``tables``, by fused multiply-adds."""
    if not isinstance(tables, _TablesType) or index is not INTS or r is not FLOATS:
        return None

    def emit(context: Any, builder: ir.IRBuilder, sig: Any, args: tuple[ir.Value, ...]) -> ir.Value:
        result, *others = (_lookup(context, builder, row, args[1]) for row in tables.rows)
        for coefficient in others:
            result = call_llvm(builder, f"llvm.fma.v{LANES}f32", FLOATS.llvm, result, args[2], coefficient)
        return result

    return FLOATS(tables, index, r), emit
