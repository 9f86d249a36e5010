"""Verification: trustworthy golden values, every published precision standard, and causes of failures."""

from __future__ import annotations

from aclnn.verify.checking import check
from aclnn.verify.goldens.golden import golden
from aclnn.verify.report.document import Report
from aclnn.verify.testing import assert_close_to_golden

__all__ = ["Report", "assert_close_to_golden", "check", "golden"]
