"""``check``: from inputs and an output to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.declaration import Operator
from aclnn.verify.bootstrap import LEAST_SEEDS, Recheck, recheck
from aclnn.verify.cases import Case, make_case, operator_named
from aclnn.verify.evaluate import Measured, evaluate
from aclnn.verify.generators import GENERATORS, mixed
from aclnn.verify.golden import Progress
from aclnn.verify.measures import Standard, Verdict
from aclnn.verify.report import Judgement, Report, case_document, document, output_document
from aclnn.verify.standards import STANDARDS, error_ratios

Array = np.ndarray[Any, Any]
Implementation = Callable[..., Any]
"""Takes inputs and attributes by Python's names, returns the output (or all of them, None where masked out)."""

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
        ValueError: an unknown operator, argument or standard, or too few seeds.
    """
    found = operator_named(operator)
    chosen = chosen_standards(standards)
    if seeds is not None and seeds < LEAST_SEEDS:
        raise ValueError(f"seeds: expected at least {LEAST_SEEDS}, got {seeds}")
    results = [made(**inputs, **attributes) if callable(made) else made for made in (actual, third)]
    case = make_case(found, inputs, results[0], results[1], attributes, name)
    again: Recheckers = {}
    if seeds is not None and callable(actual) and callable(third):
        again = rechecks(generated(case, actual, third, seeds, eps), eps)
    return Report(document([judge_case(case, chosen, standards is not None, eps, progress, again)]))


def chosen_standards(names: Sequence[str] | None) -> list[Standard]:
    """Standards by name; all of them for None.

    Raises:
        ValueError: an unknown name.
    """
    for name in names or ():
        if name not in STANDARDS:
            raise ValueError(f"standard: expected one of {', '.join(STANDARDS)}, got {name!r}")
    return [STANDARDS[name] for name in (STANDARDS if names is None else dict.fromkeys(names))]


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
    """One case's part of the report. ``named``: the user chose the standards, so that every one counts."""
    is_norm = case.operator.name == "layer_norm_backward"
    direct = [s for s in standards if not (is_norm and s.needs_third)]
    cascade = [s for s in standards if is_norm and s.needs_third]
    measured = evaluate(case, direct, progress=progress)
    cascaded = {m.name: m for m in evaluate(case, cascade, eps)} if cascade and eps is not None and case.third else {}
    outputs = []
    for one in measured:
        judgements, skipped = [], {}
        for standard in standards:
            source = cascaded.get(one.name, one) if standard in cascade else one
            if standard.name not in source.tallies:
                skipped[standard.name] = _NO_EPS if standard in cascade and case.third else _NO_THIRD
                continue
            judgements.append(_judge(source, standard, named or standard.counts, again or {}))
        outputs.append(output_document(one, judgements, skipped))
    return case_document(case, outputs)


def _judge(measured: Measured, standard: Standard, counts: bool, again: Recheckers) -> Judgement:
    outcome = measured.outcome(standard)
    rechecked: tuple[Recheck, ...] = ()
    if outcome.verdict is Verdict.FAIL and standard.name in again:
        rechecked = again[standard.name](measured.name)
    return Judgement(standard, outcome, counts, rechecked)


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
