"""``check``: verify an output and return a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np

from aclnn.core.operator import ATTRIBUTES, Operator
from aclnn.typing import Array
from aclnn.verify.cases.arguments import named_inputs, operator_named
from aclnn.verify.cases.case import Case, make_case
from aclnn.verify.goldens.values import Progress, sub_progress
from aclnn.verify.number_formats import format_of
from aclnn.verify.report.document import Assessment, Report, case_document, document, output_document
from aclnn.verify.standards.evaluate import Measured, evaluate
from aclnn.verify.standards.measures import Standard, Verdict
from aclnn.verify.standards.published import STANDARDS, deciding

Implementation = Callable[..., Any]
"""Function of inputs and attributes by Python name that returns the output (or all; None if masked out)."""

_IN_CASCADE = "layer_norm_backward"
_NO_THIRD = "needs a reference output (third=, --reference), for example a GPU's"
_NO_EPS = "a norm's backward is verified through forward and backward in cascade: needs the forward's eps (eps=, --eps)"


def check(
    operator: str | Operator,
    inputs: Mapping[str, Any],
    actual: Any,
    *,
    standards: Sequence[str] | None = None,
    all_standards: bool = False,
    third: Any = None,
    eps: float | None = None,
    name: str = "",
    progress: Progress | None = None,
    **attributes: Any,
) -> Report:
    """Verify an operator's output.

    Args:
        operator: name such as silu_backward.
        inputs: arrays by C or Python name (grad_output, self …): NumPy arrays or torch tensors, possibly memory-mapped;
            with the old contents of outputs that the operator updates (varRef …).
        actual: the output; several by name or as a tuple (None if masked out); or a function of the inputs and
            attributes by Python name that returns the outputs.
        standards: names of the standards that decide; by default all applicable ones are shown and "mixed" decides. An
            output of a type for which none of them has limits is decided by the first one that has.
        all_standards: True if all applicable standards but "bitwise" decide.
        third: reference outputs, in the form of ``actual``, for the dual-benchmark standards.
        eps: the operator's attribute; for LayerNorm's backward, which has none, the forward's: the commercial standards
            then verify both in cascade, with recomputed mean and rstd.
        name: name of the case, for the report.
        progress: called with the fraction done.
        attributes: the operator's attributes, by C or Python name (approximate, normalized_shape, output_mask).

    Raises:
        AclnnError: shapes or types that the operator rejects, with its code and text.
        ValueError: an unknown operator, argument or standard, an invalid eps, or a named standard without what it needs
            (reference outputs, eps).
    """
    found = operator_named(operator)
    chosen = chosen_standards(standards)
    own, eps = routed_eps(found, eps)
    attributes |= own
    eps = checked_eps(eps, [found.name])
    called = {**named_inputs(found, inputs), **found.by_name(attributes.items(), ATTRIBUTES)}
    results = [made(**called) if callable(made) else made for made in (actual, third)]
    case = make_case(found, inputs, results[0], results[1], attributes, name)
    counting = counting_of(standards, all_standards)
    return Report(document([verify_case(case, chosen, counting, eps, progress)]))


class Counting(Enum):
    """Selection of the standards that decide an output's verdict."""

    DEFAULT = "the ecosystem's current one, mixed"
    NAMED = "those that the user named"
    ALL = "all that can decide"


def counting_of(named: Sequence[str] | None, every: bool) -> Counting:
    """Return the selection that a user's named standards, or the choice of all, imply."""
    return Counting.NAMED if named is not None else Counting.ALL if every else Counting.DEFAULT


def routed_eps(operator: Operator, eps: float | None) -> tuple[dict[str, float], float | None]:
    """Return an eps as the operator's attribute if it has one, else as the forward's."""
    if eps is not None and any(p.python_name == "eps" for p in operator.attributes):
        return {"eps": eps}, None
    return {}, eps


def chosen_standards(names: Sequence[str] | None) -> list[Standard]:
    """Return standards by name; all of them for None.

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
    """Return the forward's eps after validation for cases of these operators.

    Raises:
        ValueError: not a finite number of at least 0, or none of the operators is verified in cascade with a forward.
    """
    if eps is None:
        return None
    if isinstance(eps, bool) or not isinstance(eps, (int, float, np.floating)) or not 0.0 <= eps < math.inf:
        raise ValueError(f"eps: expected a finite number from 0 on, got {eps!r}")
    if _IN_CASCADE not in operators:
        raise ValueError(f"eps: expected none, which only {_IN_CASCADE} is verified with, got {eps!r}")
    return float(eps)


def verify_case(
    case: Case,
    standards: Sequence[Standard],
    counting: Counting = Counting.DEFAULT,
    eps: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Verify one case and return its part of the report.

    Raises:
        ValueError: a named standard cannot assess an output.
    """
    chosen = {output: _applicable(standards, array) for output, array in case.actual.items()}
    skipped = {output: _skipped(case, output, applicable, eps) for output, applicable in chosen.items()}
    for output, reasons in skipped.items():
        for standard, reason in reasons.items():
            if counting is Counting.NAMED:
                raise ValueError(f"{case.operator.name}: {output}: {standard} {reason}")
    cascade = [s for s in standards if s.needs_third and case.operator.name == _IN_CASCADE]
    measuring, searched = (sub_progress(progress, *part) for part in ((0.0, 0.6), (0.6, 1.0)))
    measured = evaluate(
        case, [*{s.name: s for of in chosen.values() for s in of if s not in cascade}.values()], progress=measuring
    )
    cascaded = {m.name: m for m in evaluate(case, cascade, eps)} if cascade and eps is not None and case.third else {}
    outputs = []
    for number, one in enumerate(measured):
        assessments = [
            assess(cascaded[one.name] if s in cascade else one, s, counting)
            for s in chosen[one.name]
            if s.name not in skipped[one.name]
        ]
        part = sub_progress(searched, number / len(measured), (number + 1) / len(measured))
        outputs.append(output_document(one, assessments, skipped[one.name], part))
        if part is not None:
            part(1.0)
    return case_document(case, outputs)


def _applicable(standards: Sequence[Standard], actual: Array) -> list[Standard]:
    """Return the standards that have limits for an output's type; if none has, the one that decides by default."""
    target = format_of(actual.dtype)
    return [standard for standard in standards if standard.applies(target)] or [deciding(target)]


def _skipped(case: Case, output: str, standards: Sequence[Standard], eps: float | None) -> dict[str, str]:
    """Return the standards that cannot assess an output, each with the reason."""
    if output in case.third and (eps is not None or case.operator.name != _IN_CASCADE):
        return {}
    lacking = _NO_EPS if output in case.third else _NO_THIRD
    return {standard.name: lacking for standard in standards if standard.needs_third}


def assess(measured: Measured, standard: Standard, counting: Counting) -> Assessment:
    """Return a standard's assessment of an output."""
    outcome = measured.outcome(standard)
    decided, default = outcome.verdict is not Verdict.UNDECIDED, standard is deciding(measured.target)
    counts = {
        Counting.NAMED: True,
        Counting.ALL: decided and (default or standard.name != "bitwise"),
        Counting.DEFAULT: decided and default,
    }[counting]
    if outcome.verdict is Verdict.FAIL and measured.picture.worst_ulp <= 1.0 <= measured.target.sound_ulp:
        worst = f"no element is off by more than {measured.picture.worst_ulp:.2g} ULP"
        outcome = replace(outcome, reason=f"stricter than {measured.target.name} allows: {worst}")
    return Assessment(standard, outcome, counts)
