"""Functions of lists of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import LISTS, Kind
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.execution.executor import prepare
from aclnn.operators.library import foreach
from tests.cases.table import GRID, INVALID, Arguments, T
from tests.helpers.library import (
    BY_NAME,
    TRAINED,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    lerp,
    scalar,
    torch,
    wide,
)

FOREACH = tuple(operator.name for operator in foreach.OPERATORS)


SCALAR_LISTS = {"scalars": (scalar(D.FLOAT, 3), scalar(D.DOUBLE, -0.5))}


def _wides(tensors: Any) -> Any:
    return [*map(wide, tensors)]


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    **{name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} for name in FOREACH},
    **{
        name: lambda d: {each: (T(d, GRID), T(d, (4,))) for each in ("x", "x1", "x2", "x3", "out")} | SCALAR_LISTS
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    "foreach_non_finite_check_and_unscale": lambda d: {
        "scaledGrads": (T(d, GRID), T(d, (4,))),
        "foundInf": T(D.FLOAT, (1,)),
        "inScale": T(D.FLOAT, (1,)),
    },
    "foreach_norm": lambda d: {
        "x": (T(d, GRID), T(d, (4,))),
        "scalar": scalar(D.FLOAT, 1),
        "out": (T(d, ()), T(d, (1,))),
    },
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "foreach_add_list_v2": lambda a: torch._foreach_add(_wides(a["x1"]), _wides(a["x2"]), alpha=a["alpha"]),
    "foreach_sub_list_v2": lambda a: torch._foreach_sub(_wides(a["x1"]), _wides(a["x2"]), alpha=a["alpha"]),
    **{
        f"foreach_{name}_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x1"]), _wides(a["x2"])
        )
        for name in ("mul", "div", "maximum", "minimum")
    },
    **{
        f"foreach_{name}_scalar_v2": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), a["scalar"]
        )
        for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
    },
    **{
        f"foreach_{name}_scalar_list": lambda a, name=name: getattr(torch, f"_foreach_{name}")(
            _wides(a["x"]), [3, -0.5]
        )
        for name in ("add", "sub", "mul", "div")
    },
    **{
        f"foreach_{name}_scalar_{kind}": lambda a, name=name, kind=kind: getattr(torch, f"_foreach_{name}")(
            *(_wides(a[each]) for each in ("x1", "x2", "x3")), a["scalar"] if kind == "v2" else [3.0, -0.5]
        )
        for name in ("addcmul", "addcdiv")
        for kind in ("v2", "list")
    },
    "foreach_non_finite_check_and_unscale": lambda a: [
        *(wide(x) * a["inScale"][0] for x in a["scaledGrads"]),
        a["foundInf"],
    ],
    "foreach_lerp_scalar": lambda a: [lerp(*pair, a["weight"]) for pair in zip(a["x1"], a["x2"], strict=True)],
    **{
        f"foreach_{name}": lambda a, name=name: getattr(torch, f"_foreach_{name}")(_wides(a["x"]))
        for name in ("sqrt", "reciprocal", "exp", "abs", "neg", "sign")
    },
    "foreach_copy": lambda a: a["x"],
    "foreach_norm": lambda a: torch._foreach_norm(_wides(a["x"]), 1),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{name: {p.name: (T(D.FLOAT, (0, 3)),) for p in BY_NAME[name].parameters if p.kind in LISTS} for name in FOREACH},
    **{
        name: {p.name: (T(D.FLOAT, (0,)),) for p in BY_NAME[name].parameters if p.kind in LISTS}
        | {"scalars": (scalar(D.FLOAT, 1),)}
        for name in FOREACH
        if name.endswith("scalar_list")
    },
    "foreach_norm": {"x": (), "out": ()},
    "foreach_non_finite_check_and_unscale": {
        "scaledGrads": (T(D.FLOAT, (0, 3)),),
        "foundInf": {"shape": (1,)},
        "inScale": {"shape": (1,)},
    },
}

BREAKS: Mapping[str, Breaking] = {
    "as many as in x": lambda o, name: Break(
        {name: SCALAR_LISTS["scalars"][:1] if name == "scalars" else (T(D.FLOAT, GRID),)}, "2 elements"
    ),
    "as many as in x1": lambda o, name: Break({name: (T(D.FLOAT, GRID),)}, "2 elements"),
    "one element each": lambda o, name: Break({name: (T(D.FLOAT, ()), T(D.FLOAT, (2,)))}, "one element"),
    "at most 50 tensors": lambda o, name: Break(
        {p.name: (T(D.FLOAT, (1,)),) * 51 for p in o.parameters if p.kind in LISTS}
        | {p.name: (scalar(D.FLOAT, 3),) * 51 for p in o.parameters if p.kind is Kind.SCALAR_LIST},
        "at most 50",
        product=Product.ASCEND_950,
    ),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.abs(array) if operator == "foreach_sqrt" else array


class TestForeach(LibraryTests):
    subject = Subject(
        foreach.OPERATORS,
        numbers=numbers,
        calls=CALLS,
        references=REFERENCES,
        empty=EMPTY,
        breaks=BREAKS,
        default=TRAINED,
        # The documents leave shapes, and that their data types are one, to the tiling function.
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes=dict.fromkeys(("data type", "data type of each", "real number", "real number each"), INVALID),
    )


def test_integers_have_integers_as_powers() -> None:
    for exponent, wanted in ((scalar(D.INT64, -1), [0, 1, -1, 0]), (scalar(D.INT64, 3), [8, 1, -1, 27])):
        x, out = Placed(np.array([2, 1, -1, 3], np.int32), "contiguous"), Placed(np.zeros(4, np.int32), "contiguous")
        call = {"x": (x.tensor,), "scalar": exponent, "out": (out.tensor,)}
        prepare(BY_NAME["foreach_pow_scalar_v2"], call, Product.ATLAS_A2).run()
        assert out.view.tolist() == wanted


def test_copies_cross_without_loss() -> None:
    """The second copy was one of what the first had written."""
    first, second = (Placed(np.full(4, value, np.float32), "contiguous") for value in (1, 2))
    call = {"x": (first.tensor, second.tensor), "out": (second.tensor, first.tensor)}
    prepare(BY_NAME["foreach_copy"], call, Product.ATLAS_A2).run()
    assert [first.view[0], second.view[0]] == [2, 1]


def test_the_norms_of_clipped_gradients_are_of_order_2() -> None:
    x = [Placed(array, "contiguous") for array in (np.array([3, 4], np.float32), np.full((2, 8), -0.5, np.float32))]
    out = [Placed(np.zeros((), np.float32), "contiguous") for _ in x]
    call = {"scalar": scalar(D.FLOAT, 2)} | {
        name: tuple(each.tensor for each in lists) for name, lists in (("x", x), ("out", out))
    }
    prepare(BY_NAME["foreach_norm"], call, Product.ATLAS_A2).run()
    assert [each.view.item() for each in out] == [5.0, 2.0]
