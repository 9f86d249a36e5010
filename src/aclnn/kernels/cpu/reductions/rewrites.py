"""Rewrites of a formula's operations over rows that save passes or roundings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

from aclnn.kernels.trace import COLUMNS, REDUCTIONS, Step, steps_for

RUN_SUM = "run_sum({}, {})"
"""Sum over a row of products; the second factor is constant along a run and multiplies the run's sum of the first."""
PRODUCT_SUM = "product_sum({}, {})"
"""Sum over a row of products, each fused with its addition."""
MOMENTS = tuple(f"{word}({{}}, {{}}, {{}}, {{}})" for word in ("centre", "rest", "squares"))
"""A row's mean, the rounding error of the mean, and the sum of squared differences from it.

Operands are x, the sum of x, that sum divided by the number of elements, and the approximate sum of squared differences
that follows from sums. Another pass is taken only where the last two are not accurate enough.
"""
REDUCES = (*REDUCTIONS.values(), RUN_SUM, PRODUCT_SUM, *MOMENTS)
"""Reductions: those of formulas, and those that rewrites replace them by."""
_SUM, _PRODUCT, _DIFFERENCE, _QUOTIENT, _FMA = REDUCTIONS["row_sum"], "{} * {}", "{} - {}", "{} / {}", "fma({}, {}, {})"
_SIGNS = "{} + {}", _DIFFERENCE
_FUSED = {("{} + {}", 0): _FMA, ("{} + {}", 1): _FMA, (_DIFFERENCE, 0): "fma({}, {}, -{})"}
_FUSED[_DIFFERENCE, 1] = "fma(-{}, {}, {})"


def factored(steps: Sequence[Step], same: Sequence[str], results: Sequence[str]) -> list[Step]:
    """Factor constants of a run (``same``) out of sums over a row, where the remaining term is one of the results."""
    found, products = list[Step](), dict[str, Counter[str]]()

    def factors(name: str) -> Counter[str]:
        return products.get(name, Counter([name]))

    for step in steps:
        if step.template == _PRODUCT:
            first, second = map(factors, step.operands)
            products[step.result] = first + second
        if step.template == _SUM:
            product = factors(step.operands[0])
            for term, factor in itertools.product(results, same):
                if product == factors(term) + Counter([factor]):
                    step = Step(step.result, RUN_SUM, (term, factor))
                    break
        found.append(step)
    return found


def with_moments(steps: Sequence[Step]) -> list[Step]:
    """Compute a mean and the squared differences from it in one pass: Σ(x - mean)² = Σx² - mean·Σx."""
    by_result = {step.result: step for step in steps}

    def of(name: str, template: str) -> tuple[str, str]:
        """Return the operands of the step that computes a variable, if it has this template; else empty names."""
        step = by_result.get(name)
        first, *second = step.operands if step is not None and step.template == template else ("",)
        return first, "".join(second)

    means = dict[str, tuple[str, str]]()
    for step in steps:
        first, second = of(of(step.result, _SUM)[0], _PRODUCT)
        x, mean = of(first, _DIFFERENCE)
        total, count = of(mean, _QUOTIENT)
        if x and first == second and count == COLUMNS and of(total, _SUM)[0] == x:
            means[mean] = x, step.result
    found = list[Step]()
    for step in steps:
        if step.result in means:
            x, spread = means[step.result]
            words = "first", "square", "squares", "about"
            first, square, squares, about = (f"{step.result}_{word}" for word in words)
            found += [
                Step(first, step.template, step.operands),
                Step(square, _PRODUCT, (x, x)),
                Step(squares, _SUM, (square,)),
                Step(about, _FUSED[_DIFFERENCE, 1], (first, step.operands[0], squares)),
            ]
            results = step.result, f"{step.result}_rest", spread
            operands = x, step.operands[0], first, about
            found += [Step(result, word, operands) for result, word in zip(results, MOMENTS, strict=True)]
        elif step.result not in (spread for _, spread in means.values()):
            found.append(step)
    return found


def with_rests(steps: Sequence[Step], elements: Iterable[str]) -> list[Step]:
    """Correct products (x - mean)·factor with a row-constant factor by the rounding error of the mean."""
    varying, differences, found = {*elements}, dict[str, str](), list[Step]()
    means = {step.result for step in steps if step.template == MOMENTS[0]}
    for step in steps:
        if step.template not in REDUCES and not varying.isdisjoint(step.operands):
            varying.add(step.result)
        if step.template == _DIFFERENCE and step.operands[1] in means:
            differences[step.result] = step.operands[1]
        for difference, factor in (step.operands, step.operands[::-1]) if step.template == _PRODUCT else ():
            if difference in differences and factor not in varying:
                rest = f"{step.result}_rest"
                found.append(Step(rest, "-{} * {}", (f"{differences[difference]}_rest", factor)))
                step = Step(step.result, _FMA, (difference, factor, rest))
        found.append(step)
    return found


def constants(
    steps: Sequence[Step], shared: Iterable[str], numbers: Iterable[str], results: Iterable[str]
) -> list[str]:
    """Return the variables that depend on ``shared`` operands and numbers alone, if results or other steps need them.

    The shared operands themselves are among them.
    """
    found, same = {*shared}, {*shared, *numbers}
    taken = {*results}
    for step in steps:
        names = {name for name in step.operands if name.isidentifier()}
        if step.template not in REDUCES and names <= same and names & found:
            found.add(step.result)
            same.add(step.result)
        else:
            taken |= names
    return sorted(found & taken)


def combined(steps: Sequence[Step], sums: Sequence[str], same: Iterable[str]) -> tuple[list[str], list[Step]] | None:
    """Factor variables that are the ``same`` in all rows out of sums over rows.

    Return the variables to accumulate and the operations that compute the sums from these, or None if the variables are
    no fewer than the sums.
    """
    constant, linear, bases = {*same}, dict[str, Step](), dict[str, None]()
    for step in steps:
        varying = [name for name in step.operands if name.isidentifier() and name not in constant]
        if not varying:
            constant.add(step.result)
        elif (step.template == _PRODUCT and len(varying) == 1) or (step.template in _SIGNS and len(varying) == 2):
            linear[step.result] = step
    left = [*sums]
    while left:
        name = left.pop()
        if name in linear:
            left += (operand for operand in linear[name].operands if operand not in constant)
        elif name.isidentifier():
            bases[name] = None
    if len(bases) >= len(sums):
        return None
    return [*bases], steps_for(sums, steps, bases)


def fused(steps: Sequence[Step], results: Iterable[str], only_sums: bool) -> list[Step]:
    """Fuse products with the addition, or sum over rows, that alone takes them; ``only_sums``: with sums over rows."""
    uses = Counter(itertools.chain(results, *(step.operands for step in steps)))
    products = {step.result: step.operands for step in steps if step.template == _PRODUCT and uses[step.result] == 1}
    found = list[Step]()
    for step in steps:
        places = [k for k, name in enumerate(step.operands) if name in products]
        if step.template == _SUM and places:
            step = Step(step.result, PRODUCT_SUM, products[step.operands[0]])
        elif places and not only_sums and (template := _FUSED.get((step.template, places[0]))):
            factors, other = products[step.operands[places[0]]], step.operands[1 - places[0]]
            step = Step(step.result, template, (*factors, other))
        found.append(step)
    return found
