"""Conversion of passes to float32 lanes, for 16-bit results; docs/numerics-rows.md derives the bounds.

Nothing is lost until a statistic, such as the mean, has been subtracted: the statistic comes as two float32, a sum of
two operands keeps its rounding error, and other sums are float64 lanes. For other row-constant values one float32
suffices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from aclnn.kernels.cpu.reductions.rewrites import MOMENTS, PRODUCT_SUM, REDUCES, RUN_SUM, fused
from aclnn.kernels.cpu.reductions.words import SHORT_SUMS
from aclnn.kernels.trace import COMPARISONS, CONDITIONS, REDUCTIONS, Step, steps_for

_DIGITS = 24
"""Significant digits of a float32."""
_SUMS, _PRODUCT = ("{} + {}", "{} - {}"), "{} * {}"


class Narrowed(NamedTuple):
    """The operations of a pass in float32 lanes."""

    steps: list[Step]
    """Their operands are elements, numbers, and row-constant variables, each as the sum of ``high_…`` and ``low_…``."""
    rows: tuple[str, ...]
    """The row-constant variables that are needed in these two parts."""
    doubles: frozenset[str]
    """The variables that remain float64 lanes."""


def narrowed(
    steps: Iterable[Step],
    digits: Mapping[str, int],
    doubles: Collection[str],
    rows: Set[str],
    wanted: Collection[str],
) -> Narrowed | None:
    """Convert operations on elements to float32 lanes; return None if one of them has no version in float32.

    Args:
        steps: the operations.
        digits: the number of significant digits of each operand in float32 lanes.
        doubles: the operands in float64 lanes.
        rows: row-constant variables, in float64.
        wanted: variables that are stored or reduced.
    """
    steps = tuple(steps)
    found, of_rows, exact, wide = dict[str, Step](), dict[str, None](), {**digits}, {*doubles}
    others = {*wanted}.union(*(names for _, sign, names in steps if sign not in _SUMS or rows.isdisjoint(names)))
    # Operands, their products with row-constant values, and sums of these; and the terms of the sums.
    of_operands, terms = {*digits, *doubles}, set[str]()
    for result, template, operands in steps:
        if template in _SUMS and of_operands >= {*operands}:
            terms |= {*operands}
            of_operands.add(result)
        elif template == _PRODUCT and not of_operands.isdisjoint(operands) and _fixed(operands, rows):
            of_operands.add(result)

    def then(result: str, template: str, *operands: str) -> None:
        found[result] = Step(result, template, operands)

    def single(name: str) -> str:
        """Name an operand in float32."""
        if name in rows:
            of_rows[name] = None
            return f"high_{name}"
        if name not in wide:
            return name
        then(f"{name}_single", "narrow({})", name)
        return f"{name}_single"

    for result, template, operands in steps:
        of_row = [name for name in operands if name in rows]
        known = [name in exact or name in wide for name in operands]
        # `times` differs from a product only in results that are not finite, and these are recomputed in float64.
        template = _PRODUCT if template == "times({}, {})" else template
        lost = [name for name in operands if f"{name}_lost" in found]
        if template == "{} + {}" and exact.keys() >= {*operands} and result not in others:
            # The sum's rounding error (Knuth's TwoSum).
            then(result, template, *operands)
            then(f"{result}_more", "{} - {}", result, operands[0])
            then(f"{result}_rest", "{} - {}", result, f"{result}_more")
            more, rest = f"{result}_more", f"{result}_rest"
            then(f"{result}_lost", "({} - {}) + ({} - {})", operands[0], rest, operands[1], more)
        elif template in _SUMS and of_row and lost:
            high = map(single, operands)
            low = (f"low_{name}" if name in rows else f"{name}_lost" for name in operands)
            then(result, f"({template}) + ({template})", *high, *low)
        elif template in _SUMS and all(known):
            wide.add(result)
            then(result, template.format("widen({})", "widen({})"), *operands)
        elif template in _SUMS and of_row and not wide.isdisjoint(operands):
            then(result, f"narrow({template})", *operands)
        elif template in _SUMS and of_row and not exact.keys().isdisjoint(operands):
            sign = "-" if template == "{} - {}" and operands[1] in rows else "+"
            then(result, f"({template}) {sign} {{}}", *map(single, operands), f"low_{of_row[0]}")
        elif template == _PRODUCT and sum(exact.get(name, _DIGITS) for name in operands) <= _DIGITS:
            exact[result] = sum(exact[name] for name in operands)
            then(result, template, *operands)
        elif template == _PRODUCT and result in terms and any(known) and _fixed(operands, rows):
            wide.add(result)
            then(result, template.format(*("widen({})" if one else "{}" for one in known)), *operands)
        elif template in COMPARISONS and not all(name in exact or not name.isidentifier() for name in operands):
            return None  # rounding an operand may change the result
        elif template == "where({}, {}, {})" and any(name.isidentifier() for name in operands[1:]):
            if exact.keys() >= {*operands[1:]}:
                exact[result] = max(exact[name] for name in operands[1:])
            then(result, "select({}, {}, {})", *map(single, operands))
        elif template in (*_SUMS, _PRODUCT, "{} / {}", "-{}", *CONDITIONS):
            then(result, template, *map(single, operands))
        elif template == "exp({})":
            then(result, "power_of_e({})", *map(single, operands))
        else:
            return None
    found_steps = steps_for(wanted, fused([*found.values()], wanted, only_sums=False))
    return Narrowed(found_steps, tuple(of_rows), frozenset(wide))


def _fixed(operands: Iterable[str], rows: Set[str]) -> bool:
    """Return true if one of the operands is a row-constant variable or a number."""
    return any(name in rows or not name.isidentifier() for name in operands)


def with_short_sums(
    steps: Sequence[Step], elements: Iterable[str], results: Iterable[str], of_runs: bool
) -> list[Step]:
    """Accumulate sums over rows in float32, except those that statistics and moments depend on.

    ``of_runs``: also sums of runs.
    """
    varying = {*elements}
    for step in steps:
        if step.template not in REDUCES and not varying.isdisjoint(step.operands):
            varying.add(step.result)
    exact = {*results} - varying - {step.result for step in steps if step.template in REDUCES}
    exact |= {step.result for step in steps if step.template in MOMENTS}
    exact = exact.union(*(step.operands for step in steps_for(exact, steps)))
    sums = (REDUCTIONS["row_sum"], PRODUCT_SUM, *([RUN_SUM] if of_runs else ()))
    short = dict(zip(sums, SHORT_SUMS, strict=False))
    return [
        step if step.result in exact else step._replace(template=short.get(step.template, step.template))
        for step in steps
    ]
