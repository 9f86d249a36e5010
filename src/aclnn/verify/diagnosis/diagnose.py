"""Why an output is wrong: known faults, each recognised by what it does to the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from aclnn.verify.diagnosis.evidence import Cause, Evidence, evidence_at_end, evidence_of
from aclnn.verify.diagnosis.norm_faults import narrow_statistics, narrow_sums, other_statistics
from aclnn.verify.diagnosis.predicted_faults import (
    constant_output,
    edge_rule,
    moved_data,
    other_mode,
    other_operation,
    rounding,
)
from aclnn.verify.diagnosis.regional_faults import regional
from aclnn.verify.diagnosis.unwritten import unwritten
from aclnn.verify.number_formats import quiet
from aclnn.verify.standards.evaluate import Measured

Array = np.ndarray[Any, Any]


@quiet
def diagnose(measured: Measured, precision: bool = True) -> list[Cause]:
    """The probable causes of an output's errors, parts of it that are blank first; none when nothing known fits.

    Without ``precision`` what takes long is left out, unless it may be a fault of structure.
    """
    evidence = evidence_of(measured)
    if evidence.wrong_count == 0:
        return _only(rounding(evidence))
    for find in (constant_output, edge_rule, other_mode, moved_data, other_operation):
        if found := _only(find(evidence)):
            return found
    blank, left = _blank(evidence)
    if not blank and not evidence.whole:
        blank = _blank(evidence_at_end(measured))[0]
    if blank:
        return [*blank, *regional(evidence, left)]
    for find in (narrow_statistics, other_statistics, narrow_sums, rounding) if precision else ():
        if found := _only(find(evidence)):
            return found
    return regional(evidence, left)


def _only(cause: Cause | None) -> list[Cause]:
    return [] if cause is None else [cause]


def _blank(evidence: Evidence) -> tuple[list[Cause], Array]:
    """Parts that were not written; and the wrong elements that they leave."""
    finding = unwritten(evidence, evidence.gross)
    if finding is None:
        return [], evidence.wrong
    name, text, explained = finding
    return [evidence.cause(name, text, explained)], evidence.wrong & ~explained
