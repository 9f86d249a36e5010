"""aclnnRopeWithSinCosCacheV2: angles of a table, decided by rows of positions in two ways."""

from __future__ import annotations

from dataclasses import replace

from aclnn.core.checks import one_of, rule
from aclnn.core.operator import Call, Kind, camel
from aclnn.operators.library.attention import rotary
from aclnn.operators.library.common import attribute


def _three_rows(call: Call) -> str | None:
    section = call["mropeSection"] or ()
    if call["cacheMode"] == 0 or not any(section) or len(section) == 3:
        return None
    return f"mropeSection: expected 3 numbers with cacheMode 1, got {len(section)}"


_FIRST = next(operator for operator in rotary.OPERATORS if operator.name == "rope_with_sin_cos_cache")
_INPUTS, _OUTPUTS = _FIRST.parameters[:-2], _FIRST.parameters[-2:]

OPERATORS = (
    replace(
        _FIRST,
        name=f"{_FIRST.name}_v2",
        function=camel(f"{_FIRST.name}_v2"),
        parameters=(
            *_INPUTS,
            attribute(
                "cacheMode",
                Kind.INT64,
                "the layout of position rows, 0: contiguous sections, 1: interleaved up to a limit",
            ),
            *_OUTPUTS,
        ),
        checks=(*_FIRST.checks, one_of("cacheMode", 0, 1), rule("three rows in turn: mropeSection", _three_rows)),
    ),
)
