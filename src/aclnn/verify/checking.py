"""``check``: from inputs and an output to a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.operator import ATTRIBUTES, Kind, Operator
from aclnn.verify.cases.arguments import operator_named
from aclnn.verify.cases.case import Case, make_case
from aclnn.verify.goldens.values import Progress
from aclnn.verify.report.document import Judgement, Report, case_document, document, output_document
from aclnn.verify.standards.bootstrap import LEAST_SEEDS, Recheck, recheck
from aclnn.verify.standards.evaluate import Measured, evaluate
from aclnn.verify.standards.generators import GENERATORS, mixed
from aclnn.verify.standards.measures import Standard, Verdict
from aclnn.verify.standards.published import STANDARDS, error_ratios

Array = np.ndarray[Any, Any]
Implementation = Callable[..., Any]
"""Takes inputs and attributes by Python's names, returns the output (or all of them, None where masked out)."""

_IN_CASCADE = "layer_norm_backward"
_NO_THIRD = "needs a third output (third=, --third): the same operator elsewhere, such as on a GPU"
_NO_EPS = "a norm's backward is judged through forward and backward in cascade: needs the forward's eps (eps=, --eps)"


def check(
    operator: str | Operator,
    inputs: Mapping[str, Any],
    actual: Any,
    *,
    standards: Sequence[str] | None = None,
    third: Any = None,
    seeds: int | None = None,
    eps: float | None = None,
    name: str = "",
    progress: Progress | None = None,
    **attributes: Any,
) -> Report:
    """Judge an operator's output.

    Args:
        operator: such as silu_backward.
        inputs: arrays by C or Python name (grad_output, self …); NumPy arrays or torch tensors, memory-mapped ones too.
        actual: the output; several by name or as a tuple (None where masked out); or a function of the inputs and
            attributes by Python's names that returns them.
        standards: which to judge by; all that apply by default, of which "bitwise" is then shown but does not count.
        third: likewise as ``actual``, for the dual-benchmark standards.
        seeds: when a commercial standard fails and ``actual`` and ``third`` are functions: judge it again by so many
            generated cases (at least 200) of the same shapes and types.
        eps: of LayerNorm's forward; the commercial standards judge its backward in cascade, mean and rstd recomputed.
        name: of the case, for the report.
        progress: called with the fraction done.
        attributes: of the operator, by C or Python name (approximate, normalized_shape, output_mask).

    Raises:
        AclnnError: shapes or types that the operator refuses, with its own code and text.
        ValueError: an unknown operator, argument or standard, too few seeds, an eps that is none, or a standard that is
            named and lacks what it judges by (a third output, eps).
    """
    found = operator_named(operator)
    chosen = chosen_standards(standards)
    eps = checked_eps(eps, [found.name])
    if seeds is not None and seeds < LEAST_SEEDS:
        raise ValueError(f"seeds: expected at least {LEAST_SEEDS}, got {seeds}")
    called = {**found.by_name(inputs.items(), (Kind.INPUT,)), **found.by_name(attributes.items(), ATTRIBUTES)}
    results = [made(**called) if callable(made) else made for made in (actual, third)]
    case = make_case(found, inputs, results[0], results[1], attributes, name)
    again: Recheckers = {}
    if seeds is not None and callable(actual) and callable(third):
        again = rechecks(generated(case, actual, third, seeds, eps), eps)
    return Report(document([judge_case(case, chosen, standards is not None, eps, progress, again)]))


def chosen_standards(names: Sequence[str] | None) -> list[Standard]:
    """Standards by name; all of them for None.

    Raises:
        ValueError: an unknown name, or none at all.
    """
    if names is not None and not names:
        raise ValueError(f"standards: expected at least one of {', '.join(STANDARDS)}, got none")
    for name in names or ():
        if name not in STANDARDS:
            raise ValueError(f"standard: expected one of {', '.join(STANDARDS)}, got {name!r}")
    return [STANDARDS[name] for name in (STANDARDS if names is None else dict.fromkeys(names))]


def checked_eps(eps: float | None, operators: Iterable[str]) -> float | None:
    """The forward's eps for cases of these operators.

    Raises:
        ValueError: no finite number from 0 on, or none of the operators is judged in cascade with a forward.
    """
    if eps is None:
        return None
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating)) or not 0.0 <= eps < math.inf:
        raise ValueError(f"eps: expected a finite number from 0 on, got {eps!r}")
    if _IN_CASCADE not in operators:
        raise ValueError(f"eps: expected none, which only {_IN_CASCADE} is judged with, got {eps!r}")
    return float(eps)


Recheckers = Mapping[str, Callable[[str], tuple[Recheck, ...]]]
"""For each commercial standard: from an output's name to its recheck."""


def judge_case(
    case: Case,
    standards: Sequence[Standard],
    named: bool,
    eps: float | None = None,
    progress: Progress | None = None,
    again: Recheckers | None = None,
) -> dict[str, Any]:
    """One case's part of the report. ``named``: the user chose the standards, so that every one counts.

    Raises:
        ValueError: a standard that is named cannot judge an output.
    """
    skipped = {output: _skipped(case, output, standards, eps) for output in case.actual}
    for output, reasons in skipped.items():
        for standard, reason in reasons.items():
            if named:
                raise ValueError(f"{case.operator.name}: {output}: {standard} {reason}")
    cascade = [s for s in standards if s.needs_third and case.operator.name == _IN_CASCADE]
    measured = evaluate(case, [s for s in standards if s not in cascade], progress=progress)
    cascaded = {m.name: m for m in evaluate(case, cascade, eps)} if cascade and eps is not None and case.third else {}
    outputs = []
    for one in measured:
        judgements = [
            judged(cascaded[one.name] if s in cascade else one, s, named, again or {})
            for s in standards
            if s.name not in skipped[one.name]
        ]
        outputs.append(output_document(one, judgements, skipped[one.name]))
    return case_document(case, outputs)


def _skipped(case: Case, output: str, standards: Sequence[Standard], eps: float | None) -> dict[str, str]:
    """The standards that cannot judge an output, and what each lacks."""
    if output in case.third and (eps is not None or case.operator.name != _IN_CASCADE):
        return {}
    lacking = _NO_EPS if output in case.third else _NO_THIRD
    return {standard.name: lacking for standard in standards if standard.needs_third}


def judged(measured: Measured, standard: Standard, named: bool, again: Recheckers) -> Judgement:
    """A standard's judgement of an output, rechecked where it failed by what may be bad luck."""
    outcome = measured.outcome(standard)
    counts = named or (standard.counts and outcome.verdict is not Verdict.UNDECIDED)
    failed = {figure.name for figure in outcome.figures if not figure.holds}
    # The ratios leave out what is not finite: many seeds say nothing of that, nor of small values.
    luck = standard.name in again and failed and failed <= error_ratios(measured.tallies[standard.name]).keys()
    return Judgement(standard, outcome, counts, again[standard.name](measured.name) if luck else ())


def rechecks(cases: Callable[[Standard], Iterable[Case]], eps: float | None) -> Recheckers:
    """Rechecks of the commercial standards by many cases, which are computed when the first is asked for.

    Args:
        cases: for a standard, one case a seed.
        eps: as for ``check``.
    """
    known: dict[str, dict[str, tuple[Recheck, ...]]] = {}

    def compute(standard: Standard) -> dict[str, tuple[Recheck, ...]]:
        ratios: dict[str, dict[str, list[float]]] = {}
        for case in cases(standard):
            for measured in evaluate(case, [standard], eps):
                if standard.name not in measured.tallies:  # no third output
                    continue
                kept = ratios.setdefault(measured.name, {})
                for name, value in error_ratios(measured.tallies[standard.name]).items():
                    kept.setdefault(name, []).append(value)
        return {output: recheck(by_name) for output, by_name in ratios.items()}

    def one(standard: Standard) -> Callable[[str], tuple[Recheck, ...]]:
        def again(output: str) -> tuple[Recheck, ...]:
            if standard.name not in known:
                known[standard.name] = compute(standard)
            return known[standard.name][output]

        return again

    return {standard.name: one(standard) for standard in STANDARDS.values() if standard.needs_third}


def generated(
    case: Case, actual: Implementation, third: Implementation, seeds: int, eps: float | None = None
) -> Callable[[Standard], Iterable[Case]]:
    """Cases of a case's shapes and types, filled by a standard's generator from seeds 0, 1, 2 …"""
    given = {key: value for key, value in case.attributes.items() if value is not None}

    def cases(standard: Standard) -> Iterable[Case]:
        for seed in range(seeds):
            inputs = like(case, seed, standard.name, eps)
            results = [made(**inputs, **given) for made in (actual, third)]
            yield make_case(case.operator, inputs, results[0], results[1], given)

    return cases


def like(case: Case, seed: int, standard: str = "mixed", eps: float | None = None) -> dict[str, Array]:
    """Inputs of a case's shapes and types, filled by a standard's generator from a seed.

    LayerNorm's mean and rstd are those of its input (eps 1e-5 unless given).
    """
    generate = GENERATORS.get(standard, mixed)
    inputs = {}
    for position, (name, array) in enumerate(case.inputs.items()):
        values = generate(seed + 1_000_003 * position * 10, array.size)
        inputs[name] = values.astype(array.dtype).reshape(array.shape)
    if "rstd" in inputs:
        columns = int(np.prod(case.attributes["normalized_shape"]))
        rows = inputs["input"].reshape(-1, columns).astype(np.float64)
        rstd = 1.0 / np.sqrt(rows.var(axis=1) + (1e-5 if eps is None else eps))
        for name, values in (("mean", rows.mean(axis=1)), ("rstd", rstd)):
            inputs[name] = values.astype(case.inputs[name].dtype).reshape(case.inputs[name].shape)
    return inputs
