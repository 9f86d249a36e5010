"""Draw the report shown in docs/verify.md: python -m docs.verify_pictures (needs chromium)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from aclnn.verify import check
from benchmarks.implementations import literal

_HERE = Path(__file__).parent
_WIDTH, _HEIGHT = 1240, 620


def report() -> str:
    """The page for a GELU gradient that computes 1 + erf in float32, 200,000 elements uniform in [-6, 6]."""
    rng = np.random.default_rng(7)
    inputs = {
        "grad_output": rng.normal(size=(400, 500)).astype(np.float32),
        "self": rng.uniform(-6.0, 6.0, (400, 500)).astype(np.float32),
    }
    return check("gelu_backward_v2", inputs, literal("gelu_backward_v2"), approximate="none").to_html()


def draw(page: Path, picture: Path, chromium: str) -> None:
    """A picture of the top of the page."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                f"--user-data-dir={profile}", "--hide-scrollbars", f"--window-size={_WIDTH},{_HEIGHT}",
                "--blink-settings=preferredColorScheme=1", f"--screenshot={picture}", page.as_uri(),
            ],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip


def main() -> None:
    """Draw the picture next to this file."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("verify_pictures: chromium is not installed")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report(), encoding="utf-8")
        draw(page, _HERE / "verify-report.png", chromium)


if __name__ == "__main__":
    main()
