"""Ten thousand random calls through the C libraries; ``make fuzz`` makes ten million."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.helpers.toolkit_support import needs_toolkit, run

pytestmark = [needs_toolkit, pytest.mark.toolkit]


@pytest.mark.slow
def test_ten_thousand_random_calls_do_not_crash(toolkit_root: Path) -> None:
    done = run(Path(sys.executable), "-m", "tests.c.fuzz", "--root", toolkit_root, "--calls", 10_000, timeout_s=600)
    (calls,) = re.findall(r"^(\d+) calls", done.stdout, re.MULTILINE)
    assert int(calls) >= 10_000
