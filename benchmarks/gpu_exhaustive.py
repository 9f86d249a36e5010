"""Walk of ``make gpu`` over every float32 input of every elementwise operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu_checks import SLOPES, VALUES, assess, references

Row = dict[str, Any]
SAVED_EVERY = 16
"""Number of chunks between reports."""


def exhaustive(at: Any, deadline: float) -> Iterator[Row]:
    """Compare every result for dy = 1 with the formula in float64 on the device; an operator's last row counts.

    ``inputs`` is the number of inputs so far, ``of`` their total number.
    """
    torch, known, sizes = at.torch, references(at.torch), at.sizes
    operators = SLOPES | VALUES
    results: dict[str, Row] = {
        name: {
            "operator": name, "worst_ulp": 0.0, "at": None, "wrong_special": 0,
            "inputs": 0, "of": sizes.chunk * sizes.chunks,
        }
        for name in operators
    }  # fmt: skip
    ones = torch.ones(sizes.chunk, device=at.device)
    # Spread the order over all magnitudes, so that inputs beyond the time limit do not form a region.
    for count, index in enumerate(i * 97 % sizes.chunks for i in range(sizes.chunks)):
        if time.monotonic() > deadline:
            break
        first = index * (2**32 // sizes.chunks)
        patterns = torch.arange(first, first + sizes.chunk, dtype=torch.int64, device=at.device)
        x = (patterns - (patterns >= 2**31) * 2**32).to(torch.int32).view(torch.float32)
        for name in list(operators):
            formula, attributes = operators[name]
            row = results[name]
            try:
                operator = at.operator(name.split()[0])
                ours = operator(ones, x, *attributes) if name in SLOPES else operator(x, *attributes)
                worst, place, wrong = assess(torch, x, ours, known[formula](x.double()))
            except Exception as error:
                del operators[name]
                row |= {"passed": False, "text": f"{type(error).__name__}: {error}"}
                continue
            row["inputs"] += sizes.chunk
            row["wrong_special"] += wrong
            if worst > row["worst_ulp"]:
                row["worst_ulp"], row["at"] = worst, place
        if count % SAVED_EVERY == 0:
            yield from results.values()
    yield from results.values()
