"""Fit float32 versions of a function, and print its module of aclnn.kernels.fitted.

    python -m tools.fit silu_derivative > src/aclnn/kernels/fitted/silu_derivative.py
    python -m tools.fit new_derivative --per-unit 1.6 --bound 4.25 --segments 8 --terms 8 --short 3.5 3

The function is one that an operator's file decorates with ``fitted``; its own formula gives the exact values. What is
not given is as in the module that is there already: which versions, of what shape. Versions that are operations and not
segments are written by hand; they are left out. Takes 2 to 10 minutes on two cores for float32, half a minute for each
16-bit type; needs the extra ``verify`` and SciPy.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator

from rich.console import Console

from aclnn.core.dtypes import DataType
from aclnn.kernels.fitted import Segments, ShortSegments, module_of
from aclnn.kernels.trace import trace
from tools import segments, short_segments
from tools.functions import fitted_function


def module(options: argparse.Namespace, screen: Console) -> Iterator[str]:
    """Write a function's module, line by line."""
    function = fitted_function(options.name)
    present = module_of(function)
    worst, versions, kinds = [], [], set[str]()
    old = getattr(present, "FLOAT", None)
    if options.bound or isinstance(old, Segments):
        task = segments.Task(
            options.name,
            segments.nearest(options.per_unit) if options.per_unit else old.per_unit,
            options.bound or old.bound,
            options.segments or len(old.centre),
            options.terms or len(old.p),
            options.printed,
        )
        found, units = segments.search(task, screen, options.workers)
        worst.append(f"FLOAT: at most {units:.4f} ULP for every float32 up to the bound.")
        versions.append(["", *_assigned("FLOAT", segments.printed(found))])
        kinds.add(Segments.__name__)
    for dtype in (DataType.FLOAT16, DataType.BF16):
        shape = getattr(present, dtype.name, None)
        if options.short:
            per_unit, rows = options.short
            shape = ShortSegments(per_unit, (), ((),) * int(rows))
        if isinstance(shape, ShortSegments):
            short, relative, wrong = short_segments.search(function, dtype, shape, screen)
            worst.append(f"{dtype.name}: relative error at most 2^{math.log2(relative):.1f}, {wrong} x round wrongly.")
            versions.append(["", *_assigned(dtype.name, short_segments.printed(short))])
            kinds.add(ShortSegments.__name__)
    names = sorted(kinds | {"row"})
    yield f'"""Fitted versions of {options.name}, found by ``tools.fit``.'
    yield ""
    yield from worst
    yield '"""'
    yield ""
    yield "from __future__ import annotations"
    yield ""
    yield f"from aclnn.kernels.fitted import {', '.join(names)}"
    yield ""
    yield f'DIGEST = "{trace(function, 1).digest}"'
    for lines in versions:
        yield from lines


def _assigned(name: str, lines: Iterator[str]) -> Iterator[str]:
    yield f"{name} = {next(lines)}"
    yield from lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="function to fit")
    parser.add_argument("--per-unit", type=float, help="float32: segments per unit of x")
    parser.add_argument("--bound", type=float, help="float32: largest x within the segments")
    parser.add_argument("--segments", type=int, choices=(8, 16), help="float32: how many segments")
    parser.add_argument("--terms", type=int, help="float32: coefficients of each segment")
    parser.add_argument("--printed", type=float, default=math.nan, help="float32: an x that must round correctly")
    parser.add_argument("--short", type=float, nargs=2, metavar=("PER_UNIT", "ROWS"), help="16 bits: segments per unit")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    options = parser.parse_args()
    try:
        lines = list(module(options, Console(stderr=True)))
    except ValueError as error:
        parser.error(str(error))
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
