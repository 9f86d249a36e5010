"""aclnnGroupNorm and its gradients."""

from __future__ import annotations

import math

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    A2_CLASS,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NAN,
    NINE,
    NO_KERNEL,
    NULL,
    ONLY_950,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    differs,
    dtype,
    every_null,
    misshapen,
    not_floating,
    shape,
)
from tests.helpers import norms

_TRAINING = {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)}
_SHAPE = (2, 4, 3)


def _call(d: D) -> Arguments:
    return {
        "self": T(d, _SHAPE),
        "gamma": T(d, (4,)),
        "beta": T(d, (4,)),
        "N": 2,
        "C": 4,
        "HxW": 3,
        "group": 2,
        "eps": 1e-5,
        "out": T(d, _SHAPE),
        "meanOut": T(d, (2, 2)),
        "rstdOut": T(d, (2, 2)),
    }


def _described(given: Shape) -> Change:
    """The attributes that repeat a shape."""
    n, c, *space = given
    return {"N": n, "C": c, "HxW": math.prod(space), "group": 2 if c % 2 == 0 else 1}


def _reshape(rows: Shape, columns: Shape) -> Change:
    return _of_shape(norms.channels(rows, columns))


def _of_shape(given: Shape) -> Change:
    described = _described(given)
    return {
        **shape(given, "self", "out"),
        **shape(given[1:2], "gamma", "beta"),
        **shape((given[0], described["group"]), "meanOut", "rstdOut"),
        **described,
    }


def _absent(*names: str) -> Change:
    return dict.fromkeys(names)


GROUP_NORM = Case(
    operator=BY_NAME["group_norm"],
    python=aclnn.group_norm,
    call=_call,
    dtypes=dict.fromkeys(MODERN, FLOATS) | _TRAINING | {Product.ATLAS_INFERENCE: (FLOAT, FLOAT16)},
    unsupported={Product.ATLAS_200I_500_A2: (NO_KERNEL, "product")},
    reference=norms.group_forward,
    reshape=_reshape,
    mixed=lambda draw, product, arguments: _absent("gamma", "beta"),
    rejected=(
        *every_null("present: self, out, meanOut, rstdOut", "self out meanOut rstdOut"),
        *not_floating("self"),
        *differs("self", "gamma", "beta", "out", "meanOut", "rstdOut"),
        Rejected("1 or more: group", {"group": 0}, "group", "1 or more", "0"),
        Rejected("1 or more: group", {"group": -2}, "group", "1 or more", "-2"),
        Rejected("divides C: group", {"group": 3}, "group", "a divisor of 4", "3"),
        Rejected("above 0: eps", {"eps": 0.0}, "eps", "above 0", "0.0"),
        Rejected("above 0: eps", {"eps": NAN}, "eps", "above 0", "nan"),
        *(
            Rejected("2 to 8 dimensions: self", shape(got, "self"), "self", "2 to 8 dimensions", str(len(got)))
            for got in ((4,), (), NINE)
        ),
        Rejected("same shape as self: out", shape((2, 3, 4), "out"), "out", "shape [2, 4, 3]", "[2, 3, 4]"),
        *misshapen("[N, group]", (2, 1), "meanOut", "rstdOut"),
        Rejected("extents of self: N, C, HxW", {"N": 3} | shape((3, 2), "meanOut", "rstdOut"), "N", "2", "3"),
        Rejected("extents of self: N, C, HxW", {"C": 2}, "C", "4", "2"),
        Rejected("extents of self: N, C, HxW", {"HxW": 2}, "HxW", "3", "2"),
        *misshapen("[C]", (4, 1), "gamma", "beta"),
        Rejected("same format as self: out", {"out": {"format": Format.FORMAT_NCL}}, "out", "that of self", "_NCL"),
        Rejected(
            "no private format: self",
            {name: {"format": Format.FORMAT_NC1HWC0} for name in ("self", "out")},
            "self",
            "a format such as ACL_FORMAT_ND",
            "NC1HWC0",
        ),
        *(
            Rejected(
                "format with channels second: self",
                {name: {"format": got} for name in ("self", "out")},
                "self",
                "channels second",
                got.c_name,
            )
            for got in (Format.FORMAT_NHWC, Format.FORMAT_HWCN, Format.FORMAT_NDHWC)
        ),
    ),
    together={
        ("2 to 8 dimensions: self", "same shape as self: out"): shape((4,), "self"),
        ("same format as self: out", "no private format: self"): {"self": {"format": Format.FORMAT_NC1HWC0}},
    },
    never_together=frozenset({("no private format: self", "format with channels second: self")}),
    accepted=(
        Accepted("no rows", _reshape((0,), (4, 3))),
        Accepted("no columns", _of_shape((0, 0, 3))),
        Accepted("no elements in a channel", _of_shape((2, 4, 0)), MODERN),
        Accepted("2 dimensions", _of_shape((3, 6))),
        Accepted("8 dimensions", _of_shape((2, 4, 1, 2, 1, 1, 2, 1))),
        Accepted("one element a group", _of_shape((3, 1))),
        Accepted("a group of all", {"group": 1} | shape((2, 1), "meanOut", "rstdOut"), MODERN),
        Accepted("neither weight nor bias", _absent("gamma", "beta")),
        Accepted("images", {"self": {"format": Format.FORMAT_NCHW}, "out": {"format": Format.FORMAT_NCHW}}),
    ),
    examples=(
        Example(
            {
                "self": (T(FLOAT, (2, 3, 4)), [*map(float, range(1, 25))]),
                "gamma": (T(FLOAT, (3,)), [2.0] * 3),
                "beta": (T(FLOAT, (3,)), [2.0] * 3),
            },
            {"N": 2, "C": 3, "HxW": 4, "group": 1, "eps": 1e-5},
            {
                "out": " ".join(
                    [
                        "-1.186509 -0.607143 -0.027778 0.551587 1.130952 1.710317 2.289683 2.869048 3.448413 4.027778 "
                        "4.607143 5.186509"
                    ]
                    * 2
                ),
                "meanOut": "6.500000 18.500000",
                "rstdOut": "0.289683 0.289683",
            },
        ),
        Example(
            {
                "self": (T(FLOAT, (1, 4, 2)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
                "gamma": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
                "beta": (T(FLOAT, (4,)), [0, 0.25, -0.5, 1]),
            },
            {"N": 1, "C": 4, "HxW": 2, "group": 2, "eps": 1e-5},
            {
                "out": "0.210558 -1.473909 0.916768 0.214907 -0.442169 -0.210844 -1.428912 4.122887",
                "meanOut": "0.625000 0.312500",
                "rstdOut": "0.561489 0.925300",
            },
        ),
    ),
)

_OUTPUTS = ("gradInput", "gradGammaOut", "gradBetaOut")
_WANTED = " (if requested)"
_PRESENT = "gradOut input mean rstd outputMask"


def _gradient_call(d: D) -> Arguments:
    return {
        "gradOut": T(d, _SHAPE),
        "input": T(d, _SHAPE),
        "mean": T(d, (2, 2)),
        "rstd": T(d, (2, 2)),
        "gamma": T(d, (4,)),
        "N": 2,
        "C": 4,
        "HxW": 3,
        "group": 2,
        "outputMask": (True, True, True),
        "gradInput": T(d, _SHAPE),
        "gradGammaOut": T(d, (4,)),
        "gradBetaOut": T(d, (4,)),
    }


def _reshape_gradient(rows: Shape, columns: Shape) -> Change:
    return _gradient_of_shape(norms.channels(rows, columns))


def _gradient_of_shape(given: Shape) -> Change:
    described = _described(given)
    return {
        **shape(given, "gradOut", "input", "gradInput"),
        **shape(given[1:2], "gamma", "gradGammaOut", "gradBetaOut"),
        **shape((given[0], described["group"]), "mean", "rstd"),
        **described,
    }


def _gradient_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few combinations: each is a kernel of its own to compile.
    change: dict[str, object] = {"outputMask": draw(st.sampled_from(((True, False, False), (False, True, True))))}
    if draw(st.booleans()):
        change["gamma"] = None
    elif product in ONLY_950 and draw(st.booleans()):
        change |= dtype(FLOAT, "mean", "rstd", "gamma", *_OUTPUTS[1:])
    return change


GROUP_NORM_BACKWARD = Case(
    operator=BY_NAME["group_norm_backward"],
    python=aclnn.group_norm_backward,
    call=_gradient_call,
    dtypes=dict.fromkeys(MODERN, FLOATS) | _TRAINING,
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    reference=norms.group_backward,
    reshape=_reshape_gradient,
    mixed=_gradient_mixed,
    rejected=(
        *every_null(f"present: {', '.join(_PRESENT.split())}", _PRESENT),
        Rejected("three mask values", {"outputMask": (True, True)}, "outputMask", "3 values", "2"),
        Rejected("three mask values", {"outputMask": ()}, "outputMask", "3 values", "0"),
        *(
            Rejected("requested outputs present", {name: None}, name, "mask value is true", "null", NULL)
            for name in _OUTPUTS
        ),
        *not_floating("gradOut"),
        *differs("gradOut", "input"),
        Rejected("data type of gradOut: mean", dtype(FLOAT16, "mean"), "mean", "ACL_FLOAT", "16", dtypes=(FLOAT,)),
        Rejected(
            "data type of gradOut: mean",
            dtype(FLOAT, "mean"),
            "mean",
            "16",
            "ACL_FLOAT",
            products=A2_CLASS,
            dtypes=(FLOAT16,),
        ),
        *differs("mean", "rstd", "gamma"),
        *differs("gradOut", "gradInput", where=_WANTED),
        *differs("mean", *_OUTPUTS[1:], where=_WANTED),
        *(Rejected("0 or more: N, C, HxW", {name: -1}, name, "0 or more", "-1") for name in ("N", "C", "HxW")),
        Rejected("1 or more: group", {"group": 0}, "group", "1 or more", "0"),
        Rejected("divides C: group", {"group": 3}, "group", "a divisor of 4", "3"),
        Rejected(
            "few channels: C (on Atlas A3 or Atlas A2)",
            {"C": 16002},
            "C",
            "at most 8000 channels a group",
            "8001",
            products=A2_CLASS,
        ),
        Rejected(
            "few channels: C (on Atlas A3 or Atlas A2)",
            {"C": 240100, "group": 100},
            "C",
            "at most 240000 channels",
            "240100",
            products=A2_CLASS,
        ),
        Rejected("at most 8 dimensions: gradOut", shape(NINE, "gradOut"), "gradOut", "at most 8 dimensions", "9"),
        *(
            Rejected("as many elements as N·C·HxW: gradOut, input", shape((2, 4, 2), name), name, "24 elements", "16")
            for name in ("gradOut", "input")
        ),
        *(
            Rejected("as many elements as N·group: mean, rstd", shape((2, 1), name), name, "4 elements", "2")
            for name in ("mean", "rstd")
        ),
        Rejected("as many elements as C: gamma", shape((3,), "gamma"), "gamma", "4 elements", "3"),
        Rejected(
            f"same shape as input: gradInput{_WANTED}",
            shape((24,), "gradInput"),
            "gradInput",
            "shape [2, 4, 3]",
            "[24]",
        ),
        *misshapen("gamma's, or [C]", (4, 1), *_OUTPUTS[1:], where=_WANTED),
    ),
    together={("data type of gradOut: mean", "same data type as mean: rstd"): dtype(D.DOUBLE, "mean")},
    accepted=(
        Accepted("no rows", _reshape_gradient((0,), (4, 3)), (*MODERN, Product.ATLAS_TRAINING)),
        Accepted("no columns", _gradient_of_shape((0, 0, 3))),
        Accepted("no elements in a channel", _gradient_of_shape((2, 4, 0)), MODERN),
        Accepted("8 dimensions", _gradient_of_shape((2, 4, 1, 2, 1, 1, 2, 1)), MODERN),
        Accepted("one element a group", _gradient_of_shape((3, 1)), MODERN),
        Accepted("no dimensions", _gradient_of_shape((1, 1)) | shape((), "gradOut", "input", "gradInput"), MODERN),
        Accepted("flat gradOut and mean", shape((24,), "gradOut") | shape((4,), "mean"), MODERN),
        Accepted("no weight", {"gamma": None}, MODERN),
        Accepted("float32 parameters", dtype(FLOAT, "mean", "rstd", "gamma", *_OUTPUTS[1:]), ONLY_950),
        Accepted("none wanted", {"outputMask": (False,) * 3, **_absent(*_OUTPUTS)}, MODERN),
    ),
    examples=(
        Example(
            {
                "gradOut": (T(FLOAT, (2, 3, 4)), [*map(float, range(1, 25))]),
                "input": (T(FLOAT, (2, 3, 4)), [*map(float, range(1, 25))]),
                "mean": (T(FLOAT, (2,)), [6.5, 18.5]),
                "rstd": (T(FLOAT, (2,)), [0.2896827] * 2),
                "gamma": (T(FLOAT, (3,)), [1.0] * 3),
            },
            {"N": 2, "C": 3, "HxW": 4, "group": 1, "outputMask": (True,) * 3},
            {
                "gradInput": " ".join(["-0.000000"] * 6 + ["0.000000"] * 6 + ["-0.000000"] * 6 + ["0.000000"] * 6),
                "gradGammaOut": "-75.896866 2.896827 155.849289",
                "gradBetaOut": "68.000000 100.000000 132.000000",
            },
        ),
    ),
)
