"""Formulas as programs: sequences of operations, which kernels compile and by which they are identified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

from aclnn.formula import Fitted

_OPERATORS = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "truediv": "{} / {}",
    "and": "{} & {}",
    "or": "{} | {}",
    "lt": "{} < {}",
    "le": "{} <= {}",
    "gt": "{} > {}",
    "ge": "{} >= {}",
    "eq": "{} == {}",
    "ne": "{} != {}",
}
_UNARY = {"__neg__": "-{}", "__invert__": "~{}", "__abs__": "absolute({})"} | {
    word: f"{word}({{}})" for word in ("exp", "expm1", "log", "log1p", "log1pexp", "tanh", "erf", "erfc", "sqrt")
}
_OTHERS = {"where": "where({}, {}, {})", "fma": "fma({}, {}, {})", "times": "times({}, {})"}
COMPARISONS = tuple(_OPERATORS[word] for word in ("lt", "le", "gt", "ge", "eq", "ne"))
CONDITIONS = (_OPERATORS["and"], _OPERATORS["or"], _UNARY["__invert__"], *COMPARISONS)
EXACT = {*CONDITIONS, _UNARY["__neg__"], _UNARY["__abs__"], _OTHERS["where"]}
"""Operations that round nothing."""
REDUCTIONS = {word: f"{word}({{}})" for word in ("row_sum", "row_max")}
COLUMNS = "columns"
"""Name of the number of elements in a row."""


class Step(NamedTuple):
    """An operation of a program: assigned variable, template, and operands (variables and numbers)."""

    result: str
    template: str
    operands: tuple[str, ...]

    def in_float32(self) -> str:
        """Return the line of a kernel that computes the operation in float32."""
        template = _IN_FLOAT32.get(self.template, self.template)
        return f"{self.result} = {template.format(*self.operands)}"


_IN_FLOAT32 = {_OTHERS["where"]: "select({}, {}, {})", _OTHERS["times"]: _OPERATORS["mul"]}


def steps_for(wanted: Iterable[str], steps: Sequence[Step], given: Iterable[str] = ()) -> list[Step]:
    """Return the operations needed to compute variables, from given ones if any."""
    known, found = {*given}, list[Step]()
    missing = {*wanted} - known
    for step in reversed(steps):
        if step.result in missing:
            missing |= {*step.operands} - known
            found.append(step)
    return found[::-1]


class _Value:
    """An operand of a program: a variable that is assigned once."""

    def __init__(self, name: str, steps: dict[str, Step], functions: dict[str, Fitted] | None = None) -> None:
        self.name, self.steps, self.functions = name, steps, functions

    def then(self, template: str, *operands: Any) -> _Value:
        """Assign the result of an operation to a variable, reused for an equal operation."""
        names = tuple(map(_name, operands))
        step = Step(f"t{len(self.steps)}", template, names)
        return _Value(self.steps.setdefault(template.format(*names), step).result, self.steps, self.functions)

    def fitted(self, function: Fitted, *others: Any) -> _Value:
        """Record a function's operations, or the function itself if functions are requested."""
        if self.functions is None:
            return cast(_Value, function.function(self, *others))
        operands = self, *others
        self.functions[template := f"{function.__name__}({', '.join(['{}'] * len(operands))})"] = function
        return self.then(template, *operands)

    def row_mean(self) -> _Value:
        """Record the sum of a row's elements and its quotient by their number."""
        total = self.then(REDUCTIONS["row_sum"], self)
        return total.then(_OPERATORS["truediv"], total, _Value(COLUMNS, self.steps, self.functions))

    def __bool__(self) -> bool:
        raise TypeError("expected where(condition, chosen, otherwise), got a branch on an element")

    def __float__(self) -> float:
        raise TypeError("expected functions of aclnn.formula, got one that takes a float, such as math.exp")


def _name(operand: Any) -> str:
    return operand.name if isinstance(operand, _Value) else repr(float(operand))


def _define(method: str, template: str, reflected: bool = False) -> None:
    def operation(self: _Value, *others: Any) -> _Value:
        return self.then(template, *(reversed((self, *others)) if reflected else (self, *others)))

    setattr(_Value, method, operation)


for _method, _template in _OPERATORS.items():
    _define(f"__{_method}__", _template)
    _define(f"__r{_method}__", _template, reflected=True)
for _method, _template in (_UNARY | _OTHERS | REDUCTIONS).items():
    _define(_method, _template)


class Program:
    """The operations of a formula as the source of a branch-free Python function, each value computed once.

    The source names arguments ``x0, x1, …``, uses the functions of ``aclnn.formula`` and the constants ``inf`` and
    ``nan``, and does not depend on the version of Python. ``columns`` is the number of elements in a row.
    """

    def __init__(
        self, name: str, arity: int, steps: dict[str, Step], results: tuple[str, ...], functions: dict[str, Fitted]
    ) -> None:
        self.name, self.arity, self.results = name, arity, results
        self.functions = functions
        """Functions called by steps, by the steps' templates."""
        self.steps = tuple(steps.values())
        lines = [f"{step.result} = {text}" for text, step in steps.items()]
        arguments = ", ".join(f"x{i}" for i in range(arity))
        self.source = "\n    ".join((f"def formula({arguments}):", *lines, f"return {', '.join(results)}")) + "\n"

    @cached_property
    def digest(self) -> str:
        """Digest that identifies the computation."""
        return hashlib.sha256(self.source.encode()).hexdigest()

    def needed(self, result: int) -> list[Step]:
        """Return the operations needed for one of the results, last first."""
        return steps_for([self.results[result]], self.steps)[::-1]

    def taken(self, result: int) -> set[str]:
        """Return the names of arguments and values on which one of the results depends."""
        return {self.results[result]}.union(*(step.operands for step in self.needed(result)))

    def only(self, values: Sequence[str]) -> Program:
        """Return the program that computes these variables from the same arguments."""
        texts = {step.template.format(*step.operands): step for step in steps_for(values, self.steps)}
        return Program(self.name, self.arity, texts, tuple(values), {})

    def takes_rows(self, result: int) -> bool:
        """Return True if an element of this result depends on other elements of its row."""
        return any(step.template in REDUCTIONS.values() for step in self.needed(result))

    def function(self, words: dict[str, Any]) -> Any:
        """Make the function, given implementations of the program's functions."""
        namespace = {"inf": float("inf"), "nan": float("nan")} | words
        exec(compile(self.source, f"<formula {self.name}>", "exec"), namespace)
        return namespace["formula"]


@lru_cache(maxsize=512)
def trace(
    formula: Callable[..., Any], arity: int, fixed: tuple[tuple[int, float], ...] = (), calls: bool = False
) -> Program:
    """Record the operations of a formula on ``arity`` elements and numbers.

    Args:
        formula: the function.
        arity: number of arguments.
        fixed: positions and values of arguments that become constants of the program.
        calls: True to record a fitted function as one operation instead of its own operations.

    Raises:
        TypeError: the formula branches on an element, or uses functions other than those of ``aclnn.formula``.
    """
    steps: dict[str, Step] = {}
    functions: dict[str, Fitted] | None = {} if calls else None
    name, constants = getattr(formula, "__name__", "formula"), dict(fixed)
    try:
        results = formula(*(constants.get(i, _Value(f"x{i}", steps, functions)) for i in range(arity)))
    except TypeError as error:
        raise TypeError(f"formula {name}: {error}") from error
    several = results if isinstance(results, tuple) else (results,)
    return Program(name, arity, steps, tuple(map(_name, several)), functions or {})
