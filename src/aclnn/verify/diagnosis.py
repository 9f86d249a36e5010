"""Why an output is wrong: known faults, each recognised by what it does to the numbers."""

from __future__ import annotations

from aclnn.verify.evaluate import Measured
from aclnn.verify.evidence import Cause, evidence_of
from aclnn.verify.number_formats import quiet
from aclnn.verify.predicted_faults import (
    constant_output,
    edge_rule,
    moved_data,
    narrow_statistics,
    narrow_sums,
    other_mode,
    rounding,
)
from aclnn.verify.regional_faults import regional


@quiet
def diagnose(measured: Measured) -> list[Cause]:
    """The probable causes of an output's errors, the weightiest first; none when nothing known fits."""
    evidence = evidence_of(measured)
    if evidence.wrong_count:
        for find in (constant_output, edge_rule, other_mode, moved_data, narrow_statistics, narrow_sums):
            cause = find(evidence)
            if cause is not None:
                return [cause]
    cause = rounding(evidence)
    if cause is not None:
        return [cause]
    return regional(evidence) if evidence.wrong_count else []
