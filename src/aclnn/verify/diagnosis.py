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
from aclnn.verify.unwritten import unwritten


@quiet
def diagnose(measured: Measured) -> list[Cause]:
    """The probable causes of an output's errors, parts of it that are blank first; none when nothing known fits."""
    evidence = evidence_of(measured)
    if evidence.wrong_count == 0:
        return _only(rounding(evidence))
    for find in (constant_output, edge_rule, other_mode, moved_data):
        if found := _only(find(evidence)):
            return found
    blank = unwritten(evidence, evidence.gross)
    if blank is not None:
        name, text, explained = blank
        return [evidence.cause(name, text, explained), *regional(evidence, evidence.wrong & ~explained)]
    for find in (narrow_statistics, narrow_sums, rounding):
        if found := _only(find(evidence)):
            return found
    return regional(evidence, evidence.wrong)


def _only(cause: Cause | None) -> list[Cause]:
    return [] if cause is None else [cause]
