"""Flips, rolls, repetitions, padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.operators.library import arrangement
from tests.cases.table import Arguments, T
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    FLOATING,
    REAL,
    Break,
    Breaking,
    LibraryTests,
    Subject,
    no_samples,
    precise,
    torch,
)

PADS = tuple(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3))

#: Five dimensions before padding and after, from the second to the last; those that a padding of rank 1 to 3 has.
UNPADDED, MARGINS = (2, 1, 4, 3, 5), (1, 2, 0, 1, 3, 2)


def padded(name: str, d: D) -> dict[str, Any]:
    rank = int(name[-2])
    shape = UNPADDED[-rank - 1 :]
    grown = [n + sum(MARGINS[2 * at : 2 * at + 2]) for at, n in enumerate(shape[:0:-1])]
    after = (shape[0], *grown[::-1])
    return {"self": T(d, shape), "padding": MARGINS[: 2 * rank], "out": T(d, after)}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "flip": lambda d: {"dims": (-1, 0)},
    "roll": lambda d: {"shifts": (2, -1), "dims": (1, 0)},
    "repeat": lambda d: {"repeats": (2, 1, 2), "out": T(d, (2, 2, 6))},
    "repeat_interleave_int_with_dim": lambda d: {"repeats": 2, "dim": -1, "outputSize": 6, "out": T(d, (2, 6))},
    "constant_pad_nd": lambda d: {"pad": (-1, 2, 1, 0), "out": T(d, (3, 4))},
    **{name: lambda d, name=name: padded(name, d) for name in PADS},
    **{
        f"{name}_backward": lambda d, name=name: (
            {"gradOutput": padded(name, d)["out"], "gradInput": padded(name, d)["self"]} | padded(name, d)
        )
        for name in PADS
    },
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys(PADS, (*REAL, *COMPLEX)),
    **{f"{name}_backward": (*FLOATING, *COMPLEX) for name in PADS},
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "flip": lambda a: a["self"].flip((-1, 0)),
    "roll": lambda a: a["self"].roll((2, -1), (1, 0)),
    "repeat": lambda a: a["self"].repeat(2, 1, 2),
    "repeat_interleave_int_with_dim": lambda a: a["self"].repeat_interleave(2, -1),
    "constant_pad_nd": lambda a: torch.constant_pad_nd(a["self"], (-1, 2, 1, 0), a["value"]),
    **{name: lambda a, name=name: getattr(torch.ops.aten, name)(a["self"], a["padding"]) for name in PADS},
    **{
        f"{name}_backward": lambda a, name=name: getattr(torch.ops.aten, f"{name}_backward")(
            precise(a["gradOutput"]), precise(a["self"]), a["padding"]
        )
        for name in PADS
    },
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "repeat": {"out": {"shape": (2, 0, 6)}},
    "repeat_interleave_int_with_dim": {"out": {"shape": (0, 6)}},
    "constant_pad_nd": {"out": {"shape": (1, 4)}},
    **{
        f"{name}{what}": no_samples(BY_NAME[f"{name}{what}"], CALLS[f"{name}{what}"](D.FLOAT))
        for name in PADS
        for what in ("", "_backward")
    },
}

BREAKS: Mapping[str, Breaking] = {
    "dimensions of self": lambda o, name: Break({name: (2, 0)}, "from -2 to 1"),
    "one for each of dims": lambda o, name: Break({name: (1,)}, "expected 2"),
    "one for each dimension": lambda o, name: Break({name: (2,)}, "at least 2"),
    "pairs, no more than dimensions": lambda o, name: Break({name: (1,)}, "even number"),
    "fits self": lambda o, name: Break({name: (1,)}, "numbers"),
}


class TestArrangement(LibraryTests):
    subject = Subject(
        arrangement.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS
    )
