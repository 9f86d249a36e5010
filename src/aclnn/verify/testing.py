"""Assertion for tests, which fails with the brief report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aclnn.core.operator import Operator
from aclnn.verify.checking import check


def assert_close_to_golden(
    operator: str | Operator,
    inputs: Mapping[str, Any],
    actual: Any,
    *,
    standards: Sequence[str] = ("mixed", "mere-mare"),
    third: Any = None,
    **attributes: Any,
) -> None:
    """Assert that an operator's output passes the named standards; arguments as for ``aclnn.verify.check``.

    Raises:
        AssertionError: a standard fails; the text is the brief report.
    """
    __tracebackhide__ = True
    report = check(operator, inputs, actual, standards=standards, third=third, **attributes)
    if not report.passed:
        raise AssertionError("not close to the golden values\n" + report.brief())
