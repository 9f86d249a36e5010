"""aclnnGroupNormSwish and its gradients."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    BF16,
    FLOAT,
    FLOATS,
    INFINITE,
    MODERN,
    NAN,
    NINE,
    NO_KERNEL_FOUND,
    OLD,
    TILING,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    dtype,
    generated,
    shape,
)
from tests.helpers import norms

_SHAPE = (2, 4, 3)
_TOGETHER = "data types that go together: "
_NOT_EMPTY = " (unless every output is empty)"
_NAMES = "x gamma beta yOut meanOut rstdOut"
_GRADIENT_NAMES = "dy mean rstd x gamma beta dxOut dgammaOut dbetaOut"


def _tiling(check: str, change: Change, argument: str, expected: str, got: str) -> Rejected:
    return Rejected(check + _NOT_EMPTY, change, argument, expected, got, TILING, MODERN)


def _misshapen(what: str, shapes: tuple[Shape, ...], *names: str) -> tuple[Rejected, ...]:
    check = f"shape is {what}: {', '.join(names)}"
    return tuple(
        _tiling(check, shape(got, name), name, f"({what})", str(list(got))) for name in names for got in shapes
    )


def _missized(what: str, got: Shape, expected: int, *names: str) -> tuple[Rejected, ...]:
    check = f"as many elements as {what}: {', '.join(names)}"
    return tuple(_tiling(check, shape(got, name), name, f"{expected} elements", str(got[0])) for name in names)


def _call(d: D) -> Arguments:
    return {
        "x": T(d, _SHAPE),
        "gamma": T(d, (4,)),
        "beta": T(d, (4,)),
        "numGroups": 2,
        "dataFormatOptional": "NCHW",
        "eps": 1e-5,
        "activateSwish": True,
        "swishScale": 1.0,
        "yOut": T(d, _SHAPE),
        "meanOut": T(d, (2, 2)),
        "rstdOut": T(d, (2, 2)),
    }


def _group(given: Shape) -> int:
    return 2 if given[1] % 2 == 0 else 1


def _of_shape(given: Shape) -> Change:
    # Where there is nothing to write, no output may have elements.
    statistics = (given[0], _group(given)) if 0 not in given else (0,)
    return {
        **shape(given, "x", "yOut"),
        **shape(given[1:2], "gamma", "beta"),
        **shape(statistics, "meanOut", "rstdOut"),
        "numGroups": _group(given),
    }


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    names = _NAMES.split()
    change: dict[str, Any] = {"activateSwish": draw(st.booleans()), "swishScale": draw(st.sampled_from((1.0, -2.5)))}
    return change | (dtype(FLOAT, *names[1:3], *names[4:]) if draw(st.booleans()) else {})


_PROBE = {
    "x": (T(FLOAT, (1, 4, 2)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
    "gamma": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
    "beta": (T(FLOAT, (4,)), [0, 0.25, -0.5, 1]),
}
_SAMPLE = {
    "x": (T(FLOAT, (2, 3, 4)), [*map(float, range(1, 25))]),
    "gamma": (T(FLOAT, (3,)), [2.0] * 3),
    "beta": (T(FLOAT, (3,)), [2.0] * 3),
}
_ONE_GROUP = "1 or more: numGroups"

GROUP_NORM_SWISH = Case(
    operator=BY_NAME["group_norm_swish"],
    python=aclnn.group_norm_swish,
    call=_call,
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(OLD, (NO_KERNEL_FOUND, "product")),
    reference=norms.group_swish,
    reshape=lambda rows, columns: _of_shape(norms.channels(rows, columns)),
    mixed=_mixed,
    rejected=(
        *generated(_NAMES, MODERN, {"gamma": {MODERN: (FLOAT, BF16)}}),
        *(
            _tiling("2 to 8 dimensions: x", shape(got, "x"), "x", "2 to 8 dimensions", str(len(got)))
            for got in ((), (4,), NINE)
        ),
        *_misshapen("[C]", ((3,),), "gamma", "beta"),
        *(_tiling(_ONE_GROUP, {"numGroups": got}, "numGroups", "1 or more", str(got)) for got in (0, -1)),
        _tiling("divides C: numGroups", {"numGroups": 3}, "numGroups", "a divisor of 4", "3"),
        *(
            _tiling(
                "no dimension of 0: x",
                shape(got, "x") | shape(got[1:2], "gamma", "beta"),
                "x",
                "no dimension of 0",
                str(list(got)),
            )
            for got in ((0, 4, 3), (2, 0, 3), (2, 4, 0))
        ),
        _tiling("same shape as x: yOut", shape((2, 12), "yOut"), "yOut", "shape [2, 4, 3]", "[2, 12]"),
        *_missized("N·numGroups", (2,), 4, "meanOut", "rstdOut"),
    ),
    together={("kernel of the product", _TOGETHER + _NAMES.replace(" ", ", ")): dtype(D.DOUBLE, "x")},
    accepted=(
        Accepted("no rows", _of_shape((0, 4, 3)), MODERN),
        Accepted("no columns", _of_shape((0, 0, 3)), MODERN),
        Accepted(
            "empty outputs with anything",
            shape((7, 0), "yOut", "meanOut", "rstdOut") | shape((), "x") | {"numGroups": 0},
            MODERN,
        ),
        Accepted("8 dimensions", _of_shape((2, 4, 1, 2, 1, 1, 2, 1)), MODERN),
        Accepted("flat statistics", shape((4,), "meanOut", "rstdOut"), MODERN),
        Accepted("float32 parameters", dtype(FLOAT, "gamma", "beta", "meanOut", "rstdOut"), MODERN),
        Accepted("no data format", {"dataFormatOptional": None}, MODERN),
        Accepted("any data format", {"dataFormatOptional": "NHWC"}, MODERN),
        Accepted("no activation", {"activateSwish": False}, MODERN),
        *(Accepted(f"eps {eps}", {"eps": eps}, MODERN) for eps in (0.0, -1.0, NAN)),
        *(Accepted(f"scale {scale}", {"swishScale": scale}, MODERN) for scale in (0.0, -3.0, 1e30, INFINITE, NAN)),
        Accepted("formats like ND", {"x": {"format": Format.FORMAT_NHWC}}, MODERN),
    ),
    examples=(
        *(
            Example(
                _SAMPLE,
                {
                    "numGroups": 1,
                    "dataFormatOptional": layout,
                    "eps": 1e-5,
                    "activateSwish": True,
                    "swishScale": 1.0,
                },
                {
                    "yOut": " ".join(
                        [
                            "-0.277505 -0.214146 -0.013696 0.349984 0.855016 1.448429 2.079075 2.714966 3.342146 "
                            "3.957284 4.561617 5.157670"
                        ]
                        * 2
                    ),
                    "meanOut": "6.500000 18.500000",
                    "rstdOut": "0.289683 0.289683",
                },
            )
            for layout in ("NCHW", None)
        ),
        *(
            Example(
                _PROBE,
                {
                    "numGroups": 2,
                    "dataFormatOptional": None,
                    "eps": 1e-5,
                    "activateSwish": activated,
                    "swishScale": scale,
                },
                {"yOut": y, "meanOut": "0.625000 0.312500", "rstdOut": "0.561489 0.925300"},
            )
            for activated, scale, y in (
                (True, 1.0, "0.116322 -0.274662 0.654924 0.118955 -0.172987 -0.094349 -0.276163 4.057170"),
                (True, 2.0, "0.127125 -0.073459 0.790421 0.130197 -0.129237 -0.083518 -0.077559 4.121806"),
                (False, 2.0, "0.210558 -1.473909 0.916768 0.214907 -0.442169 -0.210844 -1.428912 4.122887"),
            )
        ),
    ),
)


def _gradient_call(d: D) -> Arguments:
    return {
        "dy": T(d, _SHAPE),
        "mean": T(d, (2, 2)),
        "rstd": T(d, (2, 2)),
        "x": T(d, _SHAPE),
        "gamma": T(d, (4,)),
        "beta": T(d, (4,)),
        "numGroups": 2,
        "dataFormatOptional": "NCHW",
        "swishScale": 1.0,
        "dgammaIsRequire": True,
        "dbetaIsRequire": True,
        "dxOut": T(d, _SHAPE),
        "dgammaOut": T(d, (4,)),
        "dbetaOut": T(d, (4,)),
    }


def _gradient_of_shape(given: Shape) -> Change:
    parameters = given[1:2] if 0 not in given else (0,)
    return {
        **shape(given, "dy", "x", "dxOut"),
        **shape((given[0], _group(given)), "mean", "rstd"),
        **shape(given[1:2], "gamma", "beta"),
        **shape(parameters, "dgammaOut", "dbetaOut"),
        "numGroups": _group(given),
    }


def _gradient_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few combinations: each is a kernel of its own to compile.
    required = draw(st.booleans())
    return {
        "dgammaIsRequire": required,
        "dbetaIsRequire": not required,
        "swishScale": draw(st.sampled_from((1.0, -2.5))),
    }


def _unwritten(arguments: Arguments) -> frozenset[str]:
    required = {"dgammaOut": arguments["dgammaIsRequire"], "dbetaOut": arguments["dbetaIsRequire"]}
    return frozenset(name for name, expected in required.items() if not expected)


GROUP_NORM_SWISH_GRAD = Case(
    operator=BY_NAME["group_norm_swish_grad"],
    python=aclnn.group_norm_swish_grad,
    call=_gradient_call,
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(OLD, (NO_KERNEL_FOUND, "product")),
    reference=norms.group_swish_backward,
    reshape=lambda rows, columns: _gradient_of_shape(norms.channels(rows, columns)),
    mixed=_gradient_mixed,
    unwritten=_unwritten,
    rejected=(
        *generated(_GRADIENT_NAMES, MODERN),
        *(
            _tiling("2 to 8 dimensions: x", shape(got, "x"), "x", "2 to 8 dimensions", str(len(got)))
            for got in ((), (4,), NINE)
        ),
        _tiling("same shape as x: dy", shape((2, 12), "dy"), "dy", "shape [2, 4, 3]", "[2, 12]"),
        *(_tiling(_ONE_GROUP, {"numGroups": got}, "numGroups", "1 or more", str(got)) for got in (0, -1)),
        *_misshapen("[N, numGroups]", ((2, 1), (1, 2), (4,)), "mean", "rstd"),
        *_misshapen("[C]", ((3,),), "gamma", "beta"),
        _tiling(
            "divides C: numGroups",
            {"numGroups": 3} | shape((2, 3), "mean", "rstd"),
            "numGroups",
            "a divisor of 4",
            "3",
        ),
        *(
            _tiling(
                "no dimension of 0: x",
                shape(got, "x", "dy") | shape(got[1:2], "gamma", "beta"),
                "x",
                "no dimension of 0",
                str(list(got)),
            )
            for got in ((2, 0, 3), (2, 4, 0))
        ),
        _tiling(
            "few channels: x",
            shape((2, 8002, 3), "x", "dy") | shape((8002,), "gamma", "beta"),
            "x",
            "at most 4000 channels a group",
            "4001",
        ),
        _tiling("same shape as x: dxOut", shape((2, 12), "dxOut"), "dxOut", "shape [2, 4, 3]", "[2, 12]"),
        *_missized("C", (3,), 4, "dgammaOut", "dbetaOut"),
    ),
    together={
        ("kernel of the product", _TOGETHER + _GRADIENT_NAMES.replace(" ", ", ")): dtype(D.DOUBLE, "dy"),
        ("no dimension of 0: x" + _NOT_EMPTY, "few channels: x" + _NOT_EMPTY): shape((2, 8002, 0), "x", "dy")
        | shape((8002,), "gamma", "beta"),
    },
    accepted=(
        Accepted("no rows", _gradient_of_shape((0, 4, 3)), MODERN),
        Accepted("no columns", _gradient_of_shape((0, 0, 3)), MODERN),
        Accepted(
            "empty outputs with anything",
            shape((7, 0), "dxOut", "dgammaOut", "dbetaOut") | shape((), "x") | {"numGroups": 0},
            MODERN,
        ),
        Accepted("8 dimensions", _gradient_of_shape((2, 4, 1, 2, 1, 1, 2, 1)), MODERN),
        Accepted("4000 channels a group", _gradient_of_shape((1, 8000)), MODERN),
        Accepted("gradients of parameters in other shapes", shape((4, 1), "dgammaOut", "dbetaOut"), MODERN),
        Accepted("no gradient of the weight", {"dgammaIsRequire": False}, MODERN),
        Accepted("no data format", {"dataFormatOptional": None}, MODERN),
        *(Accepted(f"scale {scale}", {"swishScale": scale}, MODERN) for scale in (0.0, -3.0, 1e30, INFINITE, NAN)),
        Accepted("formats like ND", {"x": {"format": Format.FORMAT_NHWC}}, MODERN),
    ),
    examples=(
        Example(
            _SAMPLE
            | {"dy": _SAMPLE["x"], "mean": (T(FLOAT, (2, 1)), [2.0, 2.0]), "rstd": (T(FLOAT, (2, 1)), [2.0, 2.0])},
            {
                "numGroups": 1,
                "dataFormatOptional": None,
                "swishScale": 1.0,
                "dgammaIsRequire": True,
                "dbetaIsRequire": True,
            },
            {
                # The document's last digits of large values are those of float32 arithmetic.
                "dxOut": "634.101990 -16.983543 -673.736816 -1330.053101 -1986.234375 -2642.409668 -3298.584473 "
                "-3954.759521 -4610.934570 -5267.109375 -5923.284180 -6579.458984 -55843.332031 -60914.000000 "
                "-65984.664062 -71055.335938 -76126.000000 -81196.664062 -86267.335938 -91338.000000 -96408.664062 "
                "-101479.335938 -106550.000000 -111620.664062",
                "dgammaOut": "1482.262085 2696.000244 4424.000000",
                "dbetaOut": "67.129395 100.000053 132.000000",
            },
        ),
        *(
            Example(
                _PROBE
                | {
                    "dy": (T(FLOAT, (1, 4, 2)), [1, 0, -1, 2, 0.5, -0.5, 1, 0]),
                    "mean": (T(FLOAT, (1, 2)), [0.625, 0.3125]),
                    "rstd": (T(FLOAT, (1, 2)), [0.5614890570379447, 0.9252999397606868]),
                },
                {
                    "numGroups": 2,
                    "dataFormatOptional": None,
                    "swishScale": scale,
                    "dgammaIsRequire": True,
                    "dbetaIsRequire": True,
                },
                {"dxOut": dx, "dgammaOut": dgamma, "dbetaOut": dbeta},
            )
            for scale, dx, dgamma, dbeta in (
                (
                    1.0,
                    "0.247943 -0.213571 -0.263161 0.228788 -0.130973 0.185436 -0.047224 -0.007240",
                    "0.127284 -1.287258 0.048892 0.035853",
                    "0.604506 0.311824 -0.054720 -0.029522",
                ),
                (
                    2.0,
                    "0.291401 -0.251129 -0.309410 0.269137 -0.026860 0.170223 -0.097814 -0.045549",
                    "0.148338 -1.539736 0.039524 0.112240",
                    "0.704497 0.336887 -0.092945 -0.092420",
                ),
            )
        ),
    ),
)
