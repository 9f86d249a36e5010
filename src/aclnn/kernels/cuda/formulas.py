"""Formulas as Triton functions: in float64 with the functions of the CPU's kernels, and fitted versions in float32.

The source of these functions is compiled unchanged, over the operations below. Products and sums are fused exactly
where ``fma`` is written, since kernels are launched with ``enable_fp_fusion=False``: results equal the CPU's bit by
bit.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import math
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import aclnn.formula as words
from aclnn.core.dtypes import DataType
from aclnn.formula import Fitted, Gradient
from aclnn.kernels import Formula
from aclnn.kernels.cuda.launch import table_entry, tl, triton
from aclnn.kernels.fitted import (
    SHORT,
    SIGNED_FROM,
    Bounded,
    Row,
    Segments,
    ShortSegments,
    adds_to_first,
    both_signs,
    reach,
    slope,
    version,
)
from aclnn.kernels.products import Value, products
from aclnn.kernels.products import lines as lines_of_products
from aclnn.kernels.separable import Separated, entries, lines
from aclnn.kernels.sixteen_bit import all_inputs
from aclnn.kernels.trace import Program, trace

#: Function that returns the data of a kernel's table, called at upload.
Numbers = Callable[[], NDArray[Any]]


class _Exact(ast.NodeTransformer):
    """Rewrites expressions that Triton 3.6 would misinterpret.

    It rounds numbers to float32 before comparisons, treats -x as 0 - x, and a literal -0.0 as 0.0.
    """

    def __init__(self, numbers: Iterable[str]) -> None:
        self._numbers = frozenset(numbers)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Rewrite a negation."""
        self.generic_visit(node)
        if isinstance(node.op, ast.USub) and not self._is_number(node.operand):
            return _call("negated", node.operand)
        return _call("negative_zero") if ast.unparse(node) == "-0.0" else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Rewrite a comparison."""
        self.generic_visit(node)
        sides = (node.left, *node.comparators)
        node.left, *node.comparators = (_call("widen", side) if self._is_number(side) else side for side in sides)
        return node

    def _is_number(self, node: ast.expr) -> bool:
        """Return True for a float that is known at compile time."""
        match node:
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand)
            case ast.Constant(value=value):
                return isinstance(value, float)
            case _:
                return ast.unparse(node) in self._numbers


def _call(function: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(function, ast.Load()), list(arguments), [])


def _exact(source: str, numbers: Iterable[str] = ()) -> str:
    """Rewrite the source of a float64 function with some constants so that Triton interprets it as Python does."""
    return ast.unparse(ast.fix_missing_locations(_Exact(numbers).visit(ast.parse(source)))) + "\n"


def _define(name: str, source: str, names: dict[str, Any]) -> Any:
    """Compile a function in this namespace, and add it there.

    Triton reads the source from ``linecache``, and identifies functions by qualified name.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()
    file = f"<{name} {digest}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    names |= {"__name__": __name__, "tl": tl}  # Triton looks these up in a function's module
    exec(compile(source, file, "exec"), names)
    names[name].__qualname__ = f"{name}_{digest[:16]}"
    names[name] = triton.jit(names[name])
    return names[name]


_OPERATIONS = {
    "widen(x)": "x.to(tl.float64) if isinstance(x, tl.tensor) else tl.full((), x, tl.float64)",
    "narrow(x)": "x.to(tl.float32)",
    "fma(x, y, z)": "tl.fma(widen(x), widen(y), widen(z))",
    "select(condition, chosen, otherwise)": "tl.where(condition, chosen, otherwise)",
    "absolute(x)": "tl.abs(x)",
    "sqrt(x)": "tl.sqrt(x)",
    "choose(condition, chosen, otherwise)": "tl.where(condition, widen(chosen), widen(otherwise))",
    "where(condition, chosen, otherwise)": "tl.where(condition, widen(chosen), widen(otherwise))",
    "negated(x)": "x * -1.0",
    "negative_zero()": "tl.full((), -(2**63), tl.int64).to(tl.float64, bitcast=True)",
    "fma_float32(x, y, z)": "tl.fma(x, y, z)",
    "bits(x)": "x.to(tl.int64 if x.dtype == tl.float64 else tl.int32, bitcast=True)",
    "from_bits(i)": "i.to(tl.float64 if i.dtype == tl.int64 else tl.float32, bitcast=True)",
}
"""The CPU's operations on lanes, in Triton."""


_names: dict[str, Any] = {}
for _signature, _result in _OPERATIONS.items():
    _define(_signature.split("(")[0], f"def {_signature}:\n    return {_result}\n", _names)
widen, fma, select, absolute = (_names[name] for name in ("widen", "fma", "select", "absolute"))
negated, bits, from_bits, fma_float32 = (_names[name] for name in ("negated", "bits", "from_bits", "fma_float32"))


@triton.jit
def lookup(ENTRIES: tl.constexpr, i):
    """Return entry ``i & 7`` of eight float64."""
    at = i.to(tl.int32) & 7
    found = tl.full(i.shape, ENTRIES[0], tl.float64)
    for k in tl.static_range(1, 8):
        found = tl.where(at == k, ENTRIES[k], found)
    return found


@triton.jit
def horner(x, COEFFICIENTS: tl.constexpr):
    """Evaluate the polynomial with these float64 coefficients, highest power first."""
    value = tl.full(x.shape, COEFFICIENTS[0], tl.float64)
    for k in tl.static_range(1, len(COEFFICIENTS)):
        value = fma(value, x, COEFFICIENTS[k])
    return value


def _bare(function: ast.FunctionDef) -> str:
    """Return the source of a function without decorators and annotations."""
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    return ast.unparse(function) + "\n"


def _polynomial(text: str, in_two: bool = False) -> str:
    """Return the source of a polynomial in x (see ``aclnn.kernels.cpu.simd.doubles.polynomial``)."""
    rows = tuple(map(float.fromhex, text.split()))
    if not in_two:
        return f"horner(x, {rows})"
    even, odd = (rows[(len(rows) - 1 - power) % 2 :: 2] for power in (0, 1))
    return f"fma(horner(x * x, {odd}), x, horner(x * x, {even}))"


def _table(*entries: float) -> str:
    """Return the source that looks up entry x of a table (see ``aclnn.kernels.cpu.simd.tables.table``)."""
    return f"lookup({entries}, x)"


def _words() -> dict[str, Any]:
    """Compile the functions of ``aclnn.kernels.cpu.elementwise.functions`` without an import, which needs Numba."""
    names = _names | {"math": math, "lookup": lookup, "horner": horner}
    source = files("aclnn.kernels.cpu.elementwise").joinpath("functions.py").read_text(encoding="utf-8")
    statements = ast.parse(source).body
    makers: dict[str, Any] = {"math": math, "polynomial": _polynomial, "table": _table}
    constants: dict[str, Any] = {}
    assignments: list[ast.stmt] = [node for node in statements if isinstance(node, ast.Assign)]
    exec(compile(ast.Module(assignments, []), "functions.py", "exec"), makers, constants)
    for name, value in constants.items():
        if isinstance(value, str):
            _define(name, f"def {name}(x):\n    return {value}\n", names)
        else:
            names[name] = tl.constexpr(value)
    for node in statements:
        if isinstance(node, ast.FunctionDef):
            _define(node.name, _exact(_bare(node), constants), names)
    return names | {"inf": tl.constexpr(math.inf), "nan": tl.constexpr(math.nan)}


_WORDS = _words()
narrow_to_odd = _WORDS["narrow_to_odd"]


@lru_cache(maxsize=512)
def on_float64(formula: Formula, arity: int) -> Any:
    """Return a formula of ``arity`` float64 as a Triton function; several results are a tuple."""
    return _define("formula", _exact(trace(formula, arity).source), dict(_WORDS))


_ROUND = tl.constexpr(1.5 * 2.0**23)
_SIGN = tl.constexpr(-(2**31))
_CENTRE, _C0, _P0 = (tl.constexpr(row) for row in range(3))
_ROUND_SIGNED = tl.constexpr(1.5 * 2.0**23 + SIGNED_FROM)
WIDTH = tl.constexpr(SHORT)
"""Entries in a row: a cache line, so that the look-ups of a warp cost one access. Shorter rows repeat."""


@triton.jit
def _entry(rows, ROW: tl.constexpr, i):
    return table_entry(rows + ROW * WIDTH + (i & (WIDTH - 1)))


@triton.jit
def _polynomials(upper, r, rows, i, FIRST: tl.constexpr, LAST: tl.constexpr):
    """Evaluate the polynomial in r with leading coefficient ``upper`` and the rows LAST - 1 … FIRST."""
    for k in tl.static_range(LAST - FIRST):
        upper = tl.fma(upper, r, _entry(rows, LAST - 1 - k, i))
    return upper


@triton.jit
def _terms(a, rows, PER_UNIT: tl.constexpr, COUNT: tl.constexpr, START: tl.constexpr = _ROUND):
    """Return r, p, the rounding error of p, and c0."""
    i = bits(tl.fma(a, PER_UNIT, START))
    r = a - _entry(rows, _CENTRE, i)
    upper = _polynomials(_entry(rows, _P0 + COUNT - 1, i), r, rows, i, _P0 + 1, _P0 + COUNT - 1)
    p0 = _entry(rows, _P0, i)
    p = tl.fma(upper, r, p0)
    return r, p, tl.fma(upper, r, p0 - p), _entry(rows, _C0, i)


@triton.jit
def segments(
    x, rows, PER_UNIT: tl.constexpr, COUNT: tl.constexpr, SYMMETRY: tl.constexpr, SUMMED: tl.constexpr,
    BOUND: tl.constexpr = 0.0, SLOPE: tl.constexpr = 0.0, REST: tl.constexpr = 0.0,
):  # fmt: skip
    """Evaluate ``aclnn.kernels.fitted.Segments``; the rows are centre, c0 and COUNT coefficients p."""
    a, negative = tl.abs(x), bits(x) < 0
    if SYMMETRY == "linear":
        a = tl.where(negative, tl.where(a > BOUND, BOUND, a), 0.0)
    r, p, lost, c0 = _terms(a, rows, PER_UNIT, COUNT)
    whole = a - c0
    start = tl.where(negative, c0, (whole + c0) - a) if SUMMED else c0
    g = tl.fma(r, p, tl.fma(r, lost, start))
    if SUMMED:
        g = tl.where(negative, negated(g), whole - g)
    elif SYMMETRY == "1-f":
        g = tl.where(negative, g, 1.0 - g)
    elif SYMMETRY == "x+f":
        g = tl.where(negative, negated(g), x - g)
    elif SYMMETRY == "odd":
        g = tl.where(negative, g, negated(g))
    elif SYMMETRY == "linear":
        g = tl.where(negative, negated(g), tl.fma(x, SLOPE, x * REST) if REST != 0.0 else x * SLOPE)
    return g


@triton.jit
def signed_segments(x, rows, PER_UNIT: tl.constexpr, COUNT: tl.constexpr, REST: tl.constexpr, TIMES_X: tl.constexpr):
    """Evaluate ``aclnn.kernels.fitted.Segments`` of a function without symmetry."""
    r, p, lost, c0 = _terms(x, rows, PER_UNIT, COUNT, _ROUND_SIGNED)
    g = tl.fma(r, p, c0)
    less = c0 - g
    rest = tl.fma(r, p, less) + tl.fma(r, lost + REST, c0 - (less + g))
    return tl.fma(x, g, negated(tl.fma(negated(x), rest, 0.0))) if TIMES_X else g + rest


@triton.jit
def segments_in_two(x, rows, PER_UNIT: tl.constexpr, COUNT: tl.constexpr, SYMMETRY: tl.constexpr):
    """Evaluate ``aclnn.kernels.fitted.Segments`` as the sum of two float32."""
    r, p, lost, c0 = _terms(tl.abs(x), rows, PER_UNIT, COUNT)
    g = tl.fma(r, p, c0)
    rest = tl.fma(r, lost, tl.fma(r, p, c0 - g))
    negative = bits(x) < 0
    if SYMMETRY == "1-f":
        less = 1.0 - g
        rest = tl.where(negative, rest, ((1.0 - less) - g) - rest)
        g = tl.where(negative, g, less)
    elif SYMMETRY == "x+f":
        positive = tl.where(negative, from_bits(bits(x) & _SIGN), x)
        less = positive - g
        rest = ((positive - less) - g) - rest
        g = less
    elif SYMMETRY == "odd":
        g, rest = tl.where(negative, g, negated(g)), tl.where(negative, rest, negated(rest))
    return g, rest


class Fast(NamedTuple):
    """A function of float32 x and of the address of its rows, valid for abs(x) up to a bound."""

    function: Any
    bound: float
    rows: tuple[Row, ...] = ()


@lru_cache(maxsize=512)
def fast(formula: Formula, dtype: DataType) -> Fast | None:
    """Return the fitted version of a function, or of a gradient's derivative, for x of a data type.

    None instead of a version by short segments: for 16 bits a table is faster.
    """
    function = formula.derivative if isinstance(formula, Gradient) else formula
    if not isinstance(function, Fitted):
        return None
    if function.mirrored is not None:
        other = fast(function.mirrored, dtype)
        call = "mirrored(negated(x), rows)"
        call = f"negated({call})" if function.negated else call
        return other and other._replace(function=_version(call, {"mirrored": other.function, "negated": negated}))
    if (found := version(function, dtype)) is None or isinstance(found, (ShortSegments, Bounded)):
        return None
    if isinstance(found, Segments):
        symmetry, summed = function.symmetry, adds_to_first(found, function.symmetry)
        if both_signs(symmetry):
            times_x = symmetry == "x*neither"
            call = f"signed_segments(x, rows, {found.per_unit}, {len(found.p)}, {found.rest}, {times_x})"
        else:
            given = (symmetry, summed, *((found.bound, *slope(function)) if symmetry == "linear" else ()))
            call = f"segments(x, rows, {found.per_unit}, {len(found.p)}, {', '.join(map(repr, given))})"
        names = {"segments": segments, "signed_segments": signed_segments}
        return Fast(_version(call, names), reach(found, symmetry), _widened(found.centre, found.c0, *found.p))
    words = {"fma": fma_float32, "where": select, "absolute": absolute}
    return Fast(_version("formula(x)", {"formula": _define("formula", trace(found, 1).source, words)}), math.inf)


@lru_cache(maxsize=512)
def fast_products(formula: Formula, arity: int) -> tuple[Any, Numbers] | None:
    """Return a function of the address of rows and of operands, and the rows, for a formula of products.

    It returns the tuple of results, and where they are invalid (see ``aclnn.kernels.products``).
    """
    if (found := products(formula, arity)) is None:
        return None
    names = {
        "fma": fma_float32, "absolute": absolute, "bits": bits, "negated": negated, "segments_in_two": segments_in_two,
        "select": select, "widen": widen,
    }  # fmt: skip
    rows: tuple[Row, ...] = ()

    def call(value: Value) -> str:
        nonlocal rows
        place, found = f"rows + {SHORT * len(rows)}", value.segments
        assert found is not None
        rows += _widened(found.centre, found.c0, *found.p)
        symmetry = value.function.symmetry
        return f"segments_in_two({value.operand}, {place}, {found.per_unit}, {len(found.p)}, {symmetry!r})"

    results, operands = ", ".join(found.results), ", ".join(f"x{k}" for k in range(arity))
    narrowed = (f"x{k} = x{k}.to(tl.float32)" for k in range(arity))
    body = "\n    ".join((*narrowed, *lines_of_products(found, call), f"return ({results},), outside < 0"))
    version = _define("products", _exact(f"def products(rows, {operands}):\n    {body}\n"), names)
    return version, partial(np.array, rows, np.float32)


@lru_cache(maxsize=512)
def separable(program: Program, separated: Separated) -> Any:
    """Return a function as ``fast_products`` does, of the address of tables, 16-bit operands and float64 numbers."""
    names = {
        "entry": entry_of, "select": select, "absolute": absolute, "negated": negated, "bits": bits, "widen": widen,
    }  # fmt: skip
    look_ups = (
        f"{name} = entry(table + {k * 65536}, x{operand})"
        for k, (name, operand) in enumerate(zip(separated.names, separated.operands, strict=True))
    )
    narrowed = (f"x{k} = x{k}.to(tl.float32)" for k in range(program.arity))
    results, arguments = ", ".join(program.results), ", ".join(f"x{k}" for k in range(program.arity))
    body = "\n    ".join((*look_ups, *narrowed, *lines(separated, program), f"return ({results},), outside < 0"))
    return _define("separable", _exact(f"def separable(table, {arguments}):\n    {body}\n"), names)


def tables(program: Program, separated: Separated, dtype: DataType, numbers: tuple[float, ...]) -> NDArray[np.float32]:
    """Evaluate a separable program's functions at all 16-bit numbers, in Python floats."""
    functions = program.only(separated.names).function(vars(words))
    inputs = program.arity - len(numbers)
    values = np.array([functions(*(x,) * inputs, *numbers) for x in all_inputs(dtype).tolist()], np.float64)
    return np.ravel(entries(values.reshape(65536, -1).T))


@triton.jit
def pattern(x):
    """Return the bit pattern of a 16-bit number, from 0 to 65,535."""
    return x.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.jit
def entry_of(table, x):
    """Return the entry of a 16-bit number in a table of all 16-bit numbers."""
    return table_entry(table + pattern(x))


def _version(call: str, names: dict[str, Any]) -> Any:
    return _define("version", f"def version(x, rows):\n    return {call}\n", names)


def _widened(*rows: Row) -> tuple[Row, ...]:
    return tuple(row * (SHORT // len(row)) for row in rows)
