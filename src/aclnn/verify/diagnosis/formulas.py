"""Variants of a formula's output if computed incorrectly, derived from the formula alone for every operator."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from aclnn import formula as words
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Elementwise, Kind, Operator
from aclnn.core.status import AclnnError
from aclnn.execution.executor import check_arguments
from aclnn.kernels.trace import COLUMNS, REDUCTIONS, Program, trace
from aclnn.operators import OPERATORS
from aclnn.typing import Array
from aclnn.verify.cases.arguments import attributes_of, call_of
from aclnn.verify.diagnosis.evidence import Evidence, Hypothesis
from aclnn.verify.goldens.enclosures import Points, RowLength, once_a_row
from aclnn.verify.goldens.rows import Rows
from aclnn.verify.goldens.values import Function
from aclnn.verify.number_formats import FORMATS, NumberFormat
from aclnn.verify.standards.evaluate import Source

TF32 = NumberFormat(DataType.FLOAT, 11, -126, 127)
"""Format with float32's range and float16's digits, to which matrix units round operands."""


def rounded_to(target: NumberFormat, values: Array) -> Array:
    """Round float64 values to a format, as float64."""
    if target is TF32:
        step = target.ulp(values)
        return np.rint(values / step) * step
    return target.round(values).astype(np.float64)


def cut_to(target: NumberFormat, values: Array) -> Array:
    """Truncate float64 values to a format's digits, as float64."""
    step = target.ulp(values)
    return np.where(np.isfinite(values), np.trunc(values / step) * step, values)


def _label(target: NumberFormat) -> str:
    return "TF32" if target is TF32 else target.name


def narrower(target: NumberFormat) -> list[NumberFormat]:
    """Return formats in which an intermediate may have been stored, with fewer digits than operands or results."""
    kinds = [FORMATS["bfloat16"], FORMATS["float16"], TF32]
    return [kind for kind in kinds if kind.digits < target.digits or kind.name != target.name]


def computed_in(target: NumberFormat, function: Function, operands: list[Array], only: int | None = None) -> Array:
    """Evaluate a function with every step, or only one, rounded to a format."""
    names, lines, results = _steps(function, len(operands))
    values = dict(zip(names, [*operands, *map(np.float64, function.numbers)], strict=False))
    if only is None:
        values = {name: rounded_to(target, np.asarray(value)) for name, value in values.items()}
    values = {name: np.asarray(value).view(Points) for name, value in values.items()}
    for number, (name, code) in enumerate(lines):
        value = np.asarray(eval(code, _words(), values))
        if value.dtype != np.bool_ and only in (None, number):
            value = rounded_to(target, value)
        values[name] = value.view(Points)
    return np.asarray(values[results[function.result]], np.float64) + np.zeros(operands[0].shape)


@cache
def _words() -> dict[str, Any]:
    return {"inf": np.inf, "nan": np.nan, COLUMNS: RowLength(), **vars(words)}


@cache
def _program(formula: Callable[..., Any], arity: int) -> str:
    return trace(formula, arity).source


@cache
def _steps_of(formula: Callable[..., Any], arity: int) -> tuple[list[str], list[tuple[str, Any]], list[str]]:
    lines = [line.strip() for line in _program(formula, arity).splitlines()[1:]]
    steps = [line.split(" = ", 1) for line in lines[:-1]]
    names = [f"x{i}" for i in range(arity)]
    results = lines[-1].removeprefix("return ").split(", ")
    return names, [(name, compile(code, "step", "eval")) for name, code in steps], results


def _steps(function: Function, operands: int) -> tuple[list[str], list[tuple[str, Any]], list[str]]:
    return _steps_of(function.formula, operands + len(function.numbers))


_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?:e[+-]?\d+)?(?![\w.])")


@cache
def _constants(formula: Callable[..., Any], arity: int) -> tuple[str, ...]:
    """Return the constants of a formula, as spelt in its program."""
    return tuple(dict.fromkeys(match.group() for match in _NUMBER.finditer(_program(formula, arity))))


def _compiled(source: str) -> Callable[..., Any]:
    """Return the function defined by a program's source."""
    namespace = dict(_words())
    exec(source, namespace)
    found: Callable[..., Any] = namespace["formula"]
    return found


@cache
def _with_factors(formula: Callable[..., Any], arity: int, which: tuple[str, ...]) -> Callable[..., Any]:
    """Return a formula with some constants multiplied by its additional last arguments."""
    factors = {text: f"({text} * factor{k})" for k, text in enumerate(which)}
    source = _NUMBER.sub(lambda match: factors.get(match.group(), match.group()), _program(formula, arity))
    return _compiled(source.replace("):", "".join(f", factor{k}" for k in range(len(which))) + "):", 1))


@cache
def _with_steps(formula: Callable[..., Any], arity: int, changed: tuple[tuple[str, str], ...]) -> Callable[..., Any]:
    """Return a formula with some steps, given by their variables, replaced."""
    source = _program(formula, arity)
    for name, text in changed:
        source = re.sub(rf"^    {name} = .*$", f"    {name} = {text}", source, flags=re.MULTILINE)
    return _compiled(source)


def _expression(program: Program, name: str, names: dict[str, str]) -> str:
    """Return a readable description of a program's variable."""
    step = next((step for step in program.steps if step.result == name), None)
    if step is None:
        return names.get(name, name)
    operands = [_expression(program, operand, names) for operand in step.operands]
    called = step.template.startswith(tuple(REDUCTIONS))
    return step.template.format(*(one if called or one.isidentifier() else f"({one})" for one in operands))


def _left_out(source: Source) -> Iterator[Hypothesis]:
    """Yield sums over rows left out or not divided by the count, and a last factor left out."""
    function, names = source.whole.function, source.whole.names
    arity = len(names) + len(function.numbers)
    program = trace(function.formula, arity)
    labels = {f"x{i}": name for i, name in enumerate(names)}

    def changed(text: str, *steps: tuple[str, str]) -> Hypothesis:
        def computed(f: Function, x: list[Array]) -> Array:
            return replace(f, formula=_with_steps(f.formula, arity, steps)).at_points(x)

        return Hypothesis("wrong-operation", text, _of_function(computed))

    taken = program.needed(function.result)
    last = next((step for step in taken if step.result == program.results[function.result]), None)
    if last is not None and last.template == "{} * {}":
        for one, other in (last.operands, last.operands[::-1]):
            if one in labels:
                yield changed(f"the result is not multiplied by {labels[one]}", (last.result, other))
    if source.whole.summed:
        return
    sums = [step for step in taken if step.template in REDUCTIONS.values()]
    for count in range(1, len(sums) + 1):
        for some in combinations(sums, count) if len(sums) <= 3 else ():
            texts = [_expression(program, step.result, labels) for step in some]
            # Not 0: the result of a logarithm or of a division by it could not be distinguished anywhere.
            yield changed(
                f"{' and '.join(texts)} {'is' if count == 1 else 'are'} left out, as if 0",
                *((step.result, f"0.0 * {step.operands[0]}") for step in some),
            )
    means = [step for step in taken if step.template == "{} / {}" and step.operands[1] == COLUMNS]
    if means:
        text = "sums over a row are taken instead of means"
        yield changed(text, *((step.result, step.operands[0]) for step in means))


def _of_parts(source: Source) -> Iterator[Hypothesis]:
    """Yield hypotheses that a statistic was computed without a part of each row."""
    columns = source.whole.read
    parts = [
        (f"elements {begin} to {end - 1} of each row are left out", slice(begin, end))
        for count in (2, 4, 8)
        for begin, end in pairwise(np.linspace(0, columns, count + 1).astype(int).tolist())
    ]
    every = [(f"every second element of each row, from {k} on, is left out", slice(k, None, 2)) for k in range(2)]
    for text, part in (*parts, *every) if columns >= 8 else ():
        yield Hypothesis(
            "missing-rows",
            text,
            _of_function(lambda f, x, part=part: f.at_points([np.delete(one, part, axis=1) for one in x])),
        )


def hypotheses(evidence: Evidence, searched: Evidence, struck: Array) -> Iterator[Hypothesis]:
    """Yield faults of a formula's output, the simplest first.

    Args:
        evidence: the sample, which gives access to the source.
        searched: a few elements, to which numbers are fitted.
        struck: those of the searched elements that the fault has to explain.
    """
    source = evidence.source
    if not source.size:
        return
    yield from _scaled(searched, struck)
    if not source.whole.names:  # sums of terms that depend on whole rows
        return
    yield from _otherwise_called(source)
    yield from _left_out(source)
    yield from _of_parts(source)
    yield from _operands(source)
    yield from _cut(source)
    yield from _fitted(source, searched, struck)
    if not source.whole.summed:
        yield from _family(source)
    yield from _inner(source)


def _scaled(searched: Evidence, struck: Array) -> Iterator[Hypothesis]:
    yield Hypothesis("sign", "the result has the wrong sign", lambda e: -e.v)
    with np.errstate(all="ignore"):
        ratios = (searched.a / searched.v)[struck]
    ratios = ratios[np.isfinite(ratios)]
    if ratios.size:
        factor = float(np.median(ratios))
        if factor not in (0.0, 1.0):
            text = f"the result is {factor:.6g} times what it should be"
            yield Hypothesis("scaled", text, lambda e: factor * e.v, structural=abs(factor - 1.0) > 2.0**-18)


def _of_function(change: Callable[..., Array]) -> Callable[[Evidence], Array]:
    return lambda e: e.computed(change)


def _otherwise_called(source: Source) -> Iterator[Hypothesis]:
    """Yield other values of an attribute with few choices."""
    case, call = source.case, source.case.call
    assert call is not None
    for parameter in case.operator.attributes:
        given = case.attributes[parameter.python_name]
        if parameter.kind is Kind.BOOL:
            others: tuple[Any, ...] = (not given,)
        elif parameter.kind is Kind.STRING:
            others = tuple(mode for mode in ("none", "tanh") if mode != given)
        elif "approximate" in parameter.python_name:
            others = (1 - int(given),)
        else:
            continue
        for other in others:
            changed = Call(call.operator, {**call.arguments, parameter.name: other}, call.product)
            try:
                work = changed.operator.work(changed)
            except AclnnError:
                continue
            if isinstance(work, Elementwise):
                function = Function(work.formula, work.numbers)
                text = f"computed with {parameter.python_name}={other!r} although {given!r} was asked for"
                yield Hypothesis(
                    "wrong-mode",
                    text,
                    _of_function(lambda f, x, of=function: replace(of, result=f.result).at_points(x)),
                )


def _operands(source: Source) -> Iterator[Hypothesis]:
    """Yield operands left out, exchanged or confused, or returned as the result."""
    names = list(source.whole.names)

    def other(name: str, text: str, order: Callable[..., list[Array]]) -> Hypothesis:
        return Hypothesis(name, text, _of_function(lambda f, x: f.at_points(order(x))))

    for i, one in enumerate(names):
        itself = f"the result is {f'the sum of {one}' if source.whole.summed else f'{one} itself'}"
        yield Hypothesis("wrong-operation", itself, _of_function(lambda f, x, i=i: x[i]))
        yield other("wrong-input", f"{one} has the wrong sign", lambda x, i=i: [*x[:i], -x[i], *x[i + 1 :]])
        if len(names) == 1:
            continue
        yield other(
            "wrong-input",
            f"{one} is left out, as if it were 1",
            lambda x, i=i: [*x[:i], np.ones(x[i].shape), *x[i + 1 :]],
        )
        yield other(
            "wrong-input",
            f"{one} is left out, as if it were 0",
            lambda x, i=i: [*x[:i], np.zeros(x[i].shape), *x[i + 1 :]],
        )
        if source.whole.summed:
            yield Hypothesis(
                "wrong-operation",
                f"the terms are multiplied by {one}",
                _of_function(lambda f, x, i=i: f.at_points(x) * x[i]),
            )
        for j, two in enumerate(names):
            if i != j and {one, two} <= {*source.whole.shared}:
                yield other(
                    "wrong-input",
                    f"{one} and {two} are left out, as if they were 0 and 1",
                    lambda x, i=i, j=j: [v * 0.0 + (k == j) if k in (i, j) else v for k, v in enumerate(x)],
                )
            if i != j:
                yield other("wrong-input", f"{two} is taken for {one}", lambda x, i=i, j=j: [*x[:i], x[j], *x[i + 1 :]])
            if i < j:
                yield other(
                    "wrong-input",
                    f"{one} and {two} are exchanged",
                    lambda x, i=i, j=j: [x[j] if k == i else x[i] if k == j else v for k, v in enumerate(x)],
                )
    yield Hypothesis("wrong-operation", "the result is squared", lambda e: e.v * e.v)
    dy = next((i for i, name in enumerate(names) if "grad" in name), None)
    if dy is not None and not source.whole.summed:
        twice = _of_function(lambda f, x: f.at_points(x) * x[dy])
        yield Hypothesis("wrong-operation", "the gradient is multiplied twice", twice)
    results = source.whole.function.results
    for shift in range(1, results):
        other_result = (source.whole.function.result + shift) % results
        if source.whole.summed and isinstance(source.whole, Rows) and source.whole.takes_rows(other_result):
            continue
        yield Hypothesis(
            "exchanged-outputs",
            "the results of the formula are exchanged",
            _of_function(lambda f, x, k=shift: replace(f, result=(f.result + k) % results).at_points(x)),
        )


def _cut(source: Source) -> Iterator[Hypothesis]:
    """Yield operands or results stored in a narrower format."""
    target = source.target
    for kind in narrower(target):
        if kind.digits < target.digits:
            yield Hypothesis(
                "narrow-output",
                f"the result was rounded to {_label(kind)} on the way",
                lambda e, k=kind: rounded_to(k, e.v),
                exact=True,
                structural=False,
            )
            yield Hypothesis(
                "narrow-output",
                f"the result was cut to {_label(kind)} (toward zero)",
                lambda e, k=kind: cut_to(k, e.v),
                exact=True,
                structural=False,
            )
        for labels, which in _narrowed_groups(source):
            for how, narrow in (("rounded", rounded_to), ("cut", cut_to)):
                yield Hypothesis(
                    "narrow-input",
                    f"{labels} {how} to {_label(kind)}",
                    _of_function(
                        lambda f, x, k=kind, w=which, n=narrow: f.at_points(
                            [once_a_row(partial(n, k), one) if i in w else one for i, one in enumerate(x)]
                        )
                    ),
                    structural=False,
                )


def _narrowed_groups(source: Source) -> list[tuple[str, tuple[int, ...]]]:
    """Return groups of operands that may have been narrowed together: all, each, the statistics, the others."""
    function, names = source.whole.function, source.whole.names
    taken = trace(function.formula, len(names) + len(function.numbers)).taken(function.result)
    every = tuple(i for i in range(len(names)) if f"x{i}" in taken)
    each: list[tuple[str, tuple[int, ...]]] = [(f"{names[i]} was", (i,)) for i in every]
    if len(every) == 1:
        return each
    found = [("the inputs were", every)]
    statistics = tuple(i for i in every if re.search("mean|std|var", names[i]))
    if statistics:
        labels = ", ".join(names[i] for i in statistics)
        found.append((f"the inputs but {labels} were", tuple(i for i in every if i not in statistics)))
        if len(statistics) > 1:
            found.append((f"{labels} were", statistics))
    return [*found, *each]


_CHANGES: tuple[tuple[str, str, float, Callable[[Array, float], Array]], ...] = (
    ("scaled-input", "{:.5g} times the given one", 1.0, lambda x, by: x * by),
    ("shifted-input", "off by {:.3g}", 0.0, lambda x, by: x + by),
    ("scaled-input", "of a variance off by {:.3g} (another eps, say)", 0.0, lambda x, by: x / np.sqrt(1.0 + by * x**2)),
)
"""Faults of an operand: cause, text, parameter value without the fault, and the faulty operand."""


def _moved(
    i: int, change: Callable[[Array, float], Array], function: Function, operands: list[Array], by: tuple[float, ...]
) -> Array:
    return function.at_points([*operands[:i], change(operands[i], *by), *operands[i + 1 :]])


def _fitted(source: Source, searched: Evidence, struck: Array) -> Iterator[Hypothesis]:
    """Yield another value of a numerical attribute, or of a constant of the formula."""
    function, names = source.whole.function, source.whole.names
    parameters = [p for p in source.case.operator.attributes if p.kind in (Kind.SCALAR, Kind.DOUBLE, Kind.FLOAT)]
    for k, number in enumerate(function.numbers):

        def numbered(f: Function, x: list[Array], values: tuple[float, ...], k: int = k) -> Array:
            return replace(f, numbers=(*f.numbers[:k], *values, *f.numbers[k + 1 :])).at_points(x)

        found = _fit(searched, struck, numbered, (float(number),))
        if found is not None:
            name = parameters[k].python_name if k < len(parameters) else f"number {k}"
            text = f"as with {name} = {found[0]:.6g} instead of {float(number):.6g}"
            yield Hypothesis("wrong-attribute", text, _of_function(lambda f, x, v=found, n=numbered: n(f, x, v)))
    for name in source.whole.shared:
        for cause, labels, start, fault in _CHANGES if "std" in name else _CHANGES[:2]:
            moved = partial(_moved, names.index(name), fault)
            found = _fit(searched, struck, moved, (start,))
            if found is not None:
                text = f"as with {name} {labels.format(found[0])}"
                yield Hypothesis(cause, text, _of_function(lambda f, x, v=found, n=moved: n(f, x, v)))
    arity = len(names) + len(function.numbers)
    constants = [text for text in _constants(function.formula, arity) if float(text)]
    for which in (*((text,) for text in constants), *combinations(constants, 2)):
        multiplied = _multiplied(which)
        starts = tuple(map(float, which))
        values = _fit(searched, struck, multiplied, starts)
        if values is None:
            continue
        kind = next(
            (
                k
                for k in (FORMATS["bfloat16"], FORMATS["float16"])
                if all(
                    abs(float(rounded_to(k, np.array(start))) - value) <= 2.0**-20 * abs(start)
                    for start, value in zip(starts, values, strict=True)
                )
            ),
            None,
        )
        labels = " and ".join(f"{start:.8g} is {value:.6g}" for start, value in zip(starts, values, strict=True))
        text = f"of the formula's constants {labels}{'' if kind is None else f', as it is in {kind.name}'}"
        off = max(abs(value / start - 1.0) for start, value in zip(starts, values, strict=True))
        change = _of_function(lambda f, x, v=values, n=multiplied: n(f, x, v))
        yield Hypothesis("wrong-constant", text, change, structural=off > 2.0**-18)


_At = Callable[[Function, list[Array], tuple[float, ...]], Array]


def _multiplied(which: tuple[str, ...]) -> _At:
    """Return a function whose constants are multiplied by given numbers."""

    def multiplied(function: Function, operands: list[Array], values: tuple[float, ...]) -> Array:
        formula = _with_factors(function.formula, len(operands) + len(function.numbers), which)
        factors = (value / float(text) for text, value in zip(which, values, strict=True))
        return replace(function, formula=formula, numbers=(*function.numbers, *factors)).at_points(operands)

    return multiplied


def _fit(searched: Evidence, struck: Array, at: _At, starts: tuple[float, ...]) -> tuple[float, ...] | None:
    """Fit numbers to the results by Gauss-Newton, starting from the correct ones; return None without a fit."""
    some = searched.some(struck & np.isfinite(searched.a) & np.isfinite(searched.v))
    if some.a.size < len(starts):
        return None
    values = np.array(starts)
    steps = np.maximum(np.abs(values), 1e-3) * 2.0**-12
    weight = 1.0 / some.noise
    first, change = math.inf, values
    for turn in range(12):
        base = some.computed(lambda f, x: at(f, x, tuple(values)))  # noqa: B023 (called at once)
        columns = []
        for k in range(values.size):
            ahead = values.copy()
            ahead[k] += steps[k]
            columns.append((some.computed(lambda f, x: at(f, x, tuple(ahead))) - base) / steps[k])  # noqa: B023
        miss = (some.a - base) * weight
        rise = np.stack(columns, axis=1) * weight[:, None]
        fine = np.isfinite(miss) & np.isfinite(rise).all(axis=1) & (np.abs(rise).max(axis=1) > 0.0)
        if np.count_nonzero(fine) < 0.5 * fine.size or not rise[fine].any(axis=0).all():
            return None
        if turn:
            fine &= np.abs(miss) <= 4.0 * np.median(np.abs(miss[fine])) + 1e-9
        size = float(np.median(np.abs(miss[fine])))
        first = size if turn == 0 else first
        if turn == 2 and size > 0.3 * first:
            return None
        change = np.linalg.lstsq(rise[fine], miss[fine], rcond=None)[0]
        if not np.isfinite(change).all() or np.abs(change).max() > 1e6:
            return None
        values = values + change
        if np.all(np.abs(change) <= 1e-10 * np.abs(values)):
            break
    kept = tuple(float(value) for value in values)
    if kept == starts:
        return None
    return tuple(_short_decimal(value, start) for value, start in zip(kept, starts, strict=True))


def _short_decimal(value: float, start: float) -> float:
    """Return the decimal number with few digits near a fit; the fit itself if there is none."""
    near = (round(value, digits) for digits in range(6))
    return next((float(n) for n in near if n != start and abs(n - value) <= 2.0**-19 * abs(value)), value)


def _family(source: Source) -> Iterator[Hypothesis]:
    """Yield other operators of the same operands, or of the forward input alone, possibly times dy."""
    seen: set[str] = set()
    arity = len(source.whole.names)
    mine = source.whole.function
    for operator, function, count in _functions():
        digest = f"{_program(function.formula, count + len(function.numbers))}{function.numbers}"
        if function.formula is mine.formula or digest in seen or operator.name == source.case.operator.name:
            continue
        seen.add(digest)
        if count == arity:
            yield Hypothesis(
                "wrong-operation",
                f"the result is that of {operator.name}",
                _of_function(lambda f, x, of=function: of.at_points(x)),
            )
        elif count == 1 and arity == 2:
            yield Hypothesis(
                "wrong-operation",
                f"the result is {operator.name} of the input",
                _of_function(lambda f, x, of=function: of.at_points(x[1:])),
            )
            yield Hypothesis(
                "wrong-operation",
                f"the result is the gradient times {operator.name} of the input",
                _of_function(lambda f, x, of=function: x[0] * of.at_points(x[1:])),
            )
        elif count == 2 and arity == 1:
            yield Hypothesis(
                "wrong-operation",
                f"the result is the derivative, that of {operator.name} for gradients of 1",
                _of_function(lambda f, x, of=function: of.at_points([np.ones(x[0].shape), *x])),
            )


@cache
def _functions() -> list[tuple[Operator, Function, int]]:
    """Return every operator's formula with default attributes, and its number of operands."""
    found = []
    for operator in OPERATORS:
        inputs = {p.python_name: np.ones(256, np.float32) for p in operator.inputs}
        try:
            given = attributes_of(operator, {})
            mode = given.get("approximate")
            modes: tuple[Any, ...] = ("none", "tanh") if isinstance(mode, str) else (0, 1)
            for choice in [{"approximate": mode} for mode in modes] if mode is not None else [{}]:
                call = call_of(operator, inputs, {**given, **choice})
                check_arguments(call)
                work = operator.work(call) if operator.inputs else None
                if (
                    isinstance(work, Elementwise)
                    and len(work.outputs) == 1
                    and all(isinstance(o, str) for o in work.outputs)
                ):
                    found.append((operator, Function(work.formula, work.numbers), len(work.inputs)))
        except (AclnnError, KeyError, TypeError, ValueError, AttributeError):  # an attribute lacks a default
            continue
    return found


def _inner(source: Source) -> Iterator[Hypothesis]:
    """Yield single steps of the formula, its derivative, or all steps in a narrower format."""
    function, count = source.whole.function, len(source.whole.names)
    for kind in narrower(source.target):
        if source.gradient is not None:
            for how, narrow in (("rounded", rounded_to), ("cut", cut_to)):
                yield Hypothesis(
                    "narrow-step",
                    f"the derivative was {how} to {_label(kind)} before it was multiplied by the gradient",
                    _of_function(
                        lambda f, x, k=kind, n=narrow: x[0] * n(k, f.at_points([np.ones(x[0].shape), *x[1:]]))
                    ),
                    structural=False,
                )
        lines = _steps(function, count)[1]
        for number in range(len(lines)):
            yield Hypothesis(
                "narrow-step",
                f"step {number + 1} of {len(lines)} of the formula was rounded to {_label(kind)}",
                _of_function(lambda f, x, k=kind, n=number: computed_in(k, f, x, n)),
                structural=False,
            )
        yield Hypothesis(
            "narrow-computation",
            f"every step was computed in {_label(kind)}",
            _of_function(lambda f, x, k=kind: rounded_to(k, computed_in(k, f, x))),
            structural=False,
        )
