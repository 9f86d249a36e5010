"""aclnnAdaLayerNorm, aclnnAdaLayerNormV2 and their gradients."""

from __future__ import annotations

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    A2_CLASS,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL,
    OLD,
    ONLY_950,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    changed,
    differs,
    dtype,
    every_null,
    misshapen,
    not_floating,
    other,
    shape,
)
from tests.helpers import norms

_SHAPE = (2, 3, 4)
_PARAMETERS = ("weightOptional", "biasOptional")
_STATISTICS = ("meanOutOptional", "rstdOutOptional")


def _call(d: D) -> Arguments:
    return {
        "x": T(d, _SHAPE),
        "scale": T(d, (2, 1, 4)),
        "shift": T(d, (2, 4)),
        "weightOptional": T(d, (4,)),
        "biasOptional": T(d, (4,)),
        "epsilon": 1e-5,
        "out": T(d, _SHAPE),
    }


def _call_v2(d: D) -> Arguments:
    return _call(d) | {name: T(d, (2, 3, 1)) for name in _STATISTICS}


def _whole(rows: Shape, columns: Shape) -> Shape:
    """Return changes to a shape (B…, S, H), no dimension of which may be 0."""
    extents = tuple(max(extent, 1) for extent in (*rows, *columns))
    return (1, 1, *extents)[-max(2, len(extents)) :]


def _of_shape(given: Shape) -> Change:
    *batch, _, h = given
    return {
        **shape(given, "x", "out"),
        **shape((*batch, 1, h), "scale"),
        **shape((*batch, h), "shift"),
        **shape((h,), *_PARAMETERS),
    }


def _reshape(rows: Shape, columns: Shape) -> Change:
    return _of_shape(_whole(rows, columns))


def _reshape_v2(rows: Shape, columns: Shape) -> Change:
    given = _whole(rows, columns)
    return _of_shape(given) | shape((*given[:-1], 1), *_STATISTICS)


def _absent(*names: str) -> Change:
    return dict.fromkeys(names)


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    return _absent(*draw(st.sets(st.sampled_from(_PARAMETERS))))


def _mixed_v2(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    change = dtype(FLOAT, *_PARAMETERS) if draw(st.booleans()) else {}
    return {**change, **_absent(*draw(st.sets(st.sampled_from((*_PARAMETERS, *_STATISTICS)))))}


def _dimensions(*names: str) -> tuple[Rejected, ...]:
    """Return changes that exceed the limits of x's rank and extents."""
    (first, *_) = names
    return (
        *(
            Rejected(f"2 to 8 dimensions: {first}", shape(got, *names), first, "2 to 8 dimensions", str(len(got)))
            for got in ((4,), (), NINE)
        ),
        *(
            Rejected(f"no dimension of 0: {first}", shape(got, *names), first, "no dimension of 0", str(list(got)))
            for got in ((2, 3, 0), (2, 0, 4), (0, 3, 4))
        ),
    )


def _per_sample(*names: str) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(
            f"shape is [B…, 1, H] or [B…, H]: {', '.join(names)}",
            shape(got, name),
            name,
            "[2, 1, 4] or [2, 4]",
            str(list(got)),
        )
        for name in names
        for got in ((4,), (2, 3, 4), (2, 1, 5))
    )


_FORWARD_EXAMPLES = (
    Example(
        {
            **{name: (T(FLOAT, (2, 4, 8)), [1.0] * 64) for name in ("x",)},
            **{name: (T(FLOAT, (2, 8)), [1.0] * 16) for name in ("scale", "shift")},
            **{name: (T(FLOAT, (8,)), [1.0] * 8) for name in _PARAMETERS},
        },
        {"epsilon": 1e-5},
        {
            "out": " ".join(["3.000000"] * 64),
            "meanOutOptional": " ".join(["1.000000"] * 8),
            "rstdOutOptional": " ".join(["316.227783"] * 8),
        },
    ),
    Example(
        {
            "x": (T(FLOAT, (1, 2, 4)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
            "scale": (T(FLOAT, (1, 4)), [0.5, -1, 0, 1]),
            "shift": (T(FLOAT, (1, 1, 4)), [0, 1, -0.5, 0.25]),
            "weightOptional": (T(FLOAT, (4,)), [1, 0.5, -1, 2]),
            "biasOptional": (T(FLOAT, (4,)), [0, 0.25, -0.5, 1]),
        },
        {"epsilon": 1e-5},
        {
            "out": "0.315838 1.000000 -2.333536 1.969255 -0.086747 1.000000 0.214456 8.495774",
            "meanOutOptional": "0.625000 0.312500",
            "rstdOutOptional": "0.561489 0.925300",
        },
    ),
)
#: Rejected: no product takes them.
_EMPTY = (
    Accepted("no rows", shape((2, 0, 4), "x", "out"), ()),
    Accepted("no columns", shape((2, 3, 0), "x", "out"), ()),
)
_EDGES = (
    Accepted("two dimensions", _of_shape((3, 6)), MODERN),
    Accepted("8 dimensions", _of_shape((2, 1, 2, 1, 1, 2, 3, 4)), MODERN),
    Accepted("one column", _of_shape((2, 3, 1)), MODERN),
    Accepted("one row a sample", _of_shape((3, 1, 40)), MODERN),
    Accepted("neither weight nor bias", _absent(*_PARAMETERS), MODERN),
    Accepted("scale and shift the other way round", shape((2, 4), "scale") | shape((2, 1, 4), "shift"), MODERN),
)

_ORDER: dict[tuple[str, str], Change] = {("2 to 8 dimensions: x", "no dimension of 0: x"): shape((0,), "x")}

ADA_LAYER_NORM = Case(
    operator=BY_NAME["ada_layer_norm"],
    python=aclnn.ada_layer_norm,
    call=_call,
    dtypes=dict.fromkeys(A2_CLASS, FLOATS),
    unsupported=dict.fromkeys((*OLD, *ONLY_950), (NO_KERNEL, "product")),
    reference=norms.ada_forward,
    reshape=_reshape,
    mixed=_mixed,
    rejected=(
        *every_null("present: x, scale, shift, out", "x scale shift out"),
        *not_floating("x"),
        *differs("x", "scale", "shift", *_PARAMETERS, "out"),
        *_dimensions("x"),
        *_per_sample("scale", "shift"),
        *misshapen("[H]", (1, 4), *_PARAMETERS),
        Rejected("same shape as x: out", shape((2, 4, 3), "out"), "out", "shape [2, 3, 4]", "[2, 4, 3]"),
    ),
    accepted=(*_EMPTY, *(edge._replace(products=A2_CLASS) for edge in _EDGES)),
    together=_ORDER,
    examples=tuple(example._replace(printed={"out": example.printed["out"]}) for example in _FORWARD_EXAMPLES),
)


def _with_statistics(edge: Accepted) -> Accepted:
    given = changed(_call_v2(FLOAT), edge.change)["x"].shape
    return edge._replace(change={**edge.change, **shape((*given[:-1], 1), *_STATISTICS)})


ADA_LAYER_NORM_V2 = Case(
    operator=BY_NAME["ada_layer_norm_v2"],
    python=aclnn.ada_layer_norm_v2,
    call=_call_v2,
    dtypes=dict.fromkeys(MODERN, FLOATS),
    unsupported=dict.fromkeys(OLD, (NO_KERNEL, "product")),
    reference=norms.ada_forward,
    reshape=_reshape_v2,
    mixed=_mixed_v2,
    rejected=(
        *every_null("present: x, shift, scale, out", "x shift scale out"),
        *not_floating("x"),
        *differs("x", "shift", "scale"),
        Rejected(
            "one data type: weightOptional, biasOptional",
            dtype(other, "biasOptional"),
            "biasOptional",
            "that of weightOptional",
            "ACL_FLOAT",
        ),
        *(
            Rejected(
                "data type of x or float32: biasOptional, weightOptional",
                dtype(D.DOUBLE, name) | _absent(*{*_PARAMETERS} - {name}),
                name,
                "ACL_FLOAT",
                "ACL_DOUBLE",
            )
            for name in ("biasOptional", "weightOptional")
        ),
        *differs("x", "out", "rstdOutOptional", "meanOutOptional"),
        *_dimensions("x"),
        *_per_sample("shift", "scale"),
        *misshapen("[H]", (1, 4), "biasOptional", "weightOptional"),
        Rejected("same shape as x: out", shape((2, 4, 3), "out"), "out", "shape [2, 3, 4]", "[2, 4, 3]"),
        *misshapen("[B…, S, 1]", (2, 3), "rstdOutOptional", "meanOutOptional"),
    ),
    accepted=(
        *_EMPTY,
        *map(_with_statistics, _EDGES),
        Accepted("no statistics", _absent(*_STATISTICS), MODERN),
        Accepted("float32 parameters", dtype(FLOAT, *_PARAMETERS), MODERN),
    ),
    examples=_FORWARD_EXAMPLES,
    together=_ORDER
    | {
        (
            "one data type: weightOptional, biasOptional",
            "data type of x or float32: biasOptional, weightOptional",
        ): dtype(D.DOUBLE, "biasOptional"),
    },
)

_OUTPUTS = ("gradInputOut", "gradScaleOut", "gradShiftOut", "gradWeightOut", "gradBiasOut")


def _gradient_call(d: D) -> Arguments:
    return {
        "gradOut": T(d, _SHAPE),
        "input": T(d, _SHAPE),
        "normalizedShape": (4,),
        "rstd": T(d, (2, 3, 1)),
        "mean": T(d, (2, 3, 1)),
        "scale": T(d, (2, 4)),
        "shift": T(d, (2, 1, 4)),
        "weightOptional": T(d, (4,)),
        "biasOptional": T(d, (4,)),
        "gradInputOut": T(d, _SHAPE),
        "gradScaleOut": T(d, (2, 4)),
        "gradShiftOut": T(d, (2, 1, 4)),
        "gradWeightOut": T(d, (4,)),
        "gradBiasOut": T(d, (4,)),
    }


def _gradient_of_shape(given: Shape) -> Change:
    *batch, _, h = given
    return {
        **shape(given, "gradOut", "input", "gradInputOut"),
        **shape((*given[:-1], 1), "rstd", "mean"),
        **shape((*batch, h), "scale", "gradScaleOut"),
        **shape((*batch, 1, h), "shift", "gradShiftOut"),
        **shape((h,), *_PARAMETERS, "gradWeightOut", "gradBiasOut"),
        "normalizedShape": (h,),
    }


def _gradient_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    change = dtype(FLOAT, *_PARAMETERS, *_OUTPUTS[3:]) if draw(st.booleans()) else {}
    return {**change, **_absent(*draw(st.sets(st.sampled_from((*_PARAMETERS, *_OUTPUTS[1:])))))}


_PRESENT = "gradOut input normalizedShape mean rstd scale shift"

ADA_LAYER_NORM_BACKWARD = Case(
    operator=BY_NAME["ada_layer_norm_backward"],
    python=aclnn.ada_layer_norm_backward,
    call=_gradient_call,
    dtypes=dict.fromkeys(A2_CLASS, FLOATS),
    unsupported=dict.fromkeys((*OLD, *ONLY_950), (NO_KERNEL, "product")),
    reference=norms.ada_backward,
    reshape=lambda rows, columns: _gradient_of_shape(_whole(rows, columns)),
    mixed=_gradient_mixed,
    unused=frozenset({"shift"}),
    rejected=(
        *every_null(f"present: {', '.join(_PRESENT.split())}", _PRESENT),
        *not_floating("gradOut"),
        *differs("gradOut", "input", "rstd", "mean", "scale", "shift"),
        *(
            Rejected(
                "data type of gradOut or float32: weightOptional, biasOptional",
                dtype(D.DOUBLE, name),
                name,
                "ACL_FLOAT",
                "ACL_DOUBLE",
            )
            for name in _PARAMETERS
        ),
        Rejected(
            "one data type: weightOptional, biasOptional",
            dtype(FLOAT, "biasOptional"),
            "biasOptional",
            "that of weightOptional",
            "ACL_FLOAT",
            dtypes=(FLOAT16, D.BF16),
        ),
        *differs("gradOut", *_OUTPUTS[:3]),
        *(
            Rejected(
                "data type of the parameters: gradWeightOut, gradBiasOut",
                dtype(D.DOUBLE, name),
                name,
                "that of the parameters",
                "ACL_DOUBLE",
            )
            for name in _OUTPUTS[3:]
        ),
        *(
            Rejected(
                f"at most 8 dimensions: gradOut, input, mean, rstd, scale, shift, {', '.join(_OUTPUTS)}",
                shape(NINE, name),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOut", "input", "mean", "rstd", "scale", "shift", *_OUTPUTS)
        ),
        Rejected("same shape as gradOut: input", shape((2, 4, 3), "input"), "input", "[2, 3, 4]", "[2, 4, 3]"),
        Rejected("same shape as mean: rstd", shape((2, 3), "rstd"), "rstd", "[2, 3, 1]", "[2, 3]"),
        *(
            Rejected("2 to 8 dimensions: input", shape(got, "gradOut", "input"), "input", "2 to 8", str(len(got)))
            for got in ((4,), ())
        ),
        *(
            Rejected(
                "shape of the last dimension: normalizedShape",
                {"normalizedShape": got},
                "normalizedShape",
                "[4] (H)",
                str(list(got)),
            )
            for got in ((), (3,), (3, 4))
        ),
        *misshapen("[H]", (1, 4), *_PARAMETERS),
        *(
            Rejected(
                "no dimension of 0: input", shape(got, "gradOut", "input"), "input", "no dimension", str(list(got))
            )
            for got in ((2, 0, 4), (0, 3, 4))
        ),
        *_per_sample("scale", "shift"),
        *(
            Rejected("shape is [B…, S, 1]: mean", shape(got, "mean", "rstd"), "mean", "[2, 3, 1]", str(list(got)))
            for got in ((2, 3), (2, 3, 4))
        ),
        Rejected(
            "same shape as input: gradInputOut", shape((24,), "gradInputOut"), "gradInputOut", "[2, 3, 4]", "[24]"
        ),
        Rejected("same shape as scale: gradScaleOut", shape((8,), "gradScaleOut"), "gradScaleOut", "[2, 4]", "[8]"),
        Rejected("same shape as shift: gradShiftOut", shape((8,), "gradShiftOut"), "gradShiftOut", "[2, 1, 4]", "[8]"),
        *(
            Rejected(
                "as many elements as H: gradWeightOut, gradBiasOut", shape((3,), name), name, "4 elements (H)", "3"
            )
            for name in _OUTPUTS[3:]
        ),
    ),
    accepted=(
        Accepted("no rows", _gradient_of_shape((2, 0, 4)), ()),
        Accepted("no columns", _gradient_of_shape((2, 3, 0)), ()),
        Accepted("two dimensions", _gradient_of_shape((3, 6)), A2_CLASS),
        Accepted("8 dimensions", _gradient_of_shape((2, 1, 2, 1, 1, 2, 3, 4)), A2_CLASS),
        Accepted("one column", _gradient_of_shape((2, 3, 1)), A2_CLASS),
        Accepted("one row a sample", _gradient_of_shape((3, 1, 40)), A2_CLASS),
        Accepted("neither weight nor bias", _absent(*_PARAMETERS), A2_CLASS),
        Accepted("only a bias", _absent("weightOptional"), A2_CLASS),
        Accepted("float32 parameters", dtype(FLOAT, *_PARAMETERS, *_OUTPUTS[3:]), A2_CLASS),
        Accepted("gradients of parameters in another shape", shape((2, 2), *_OUTPUTS[3:]), A2_CLASS),
        Accepted("no gradients of parameters", _absent(*_OUTPUTS[3:]), A2_CLASS),
        Accepted("only that of scale", _absent(*{*_OUTPUTS} - {"gradScaleOut"}), A2_CLASS),
        Accepted("none wanted", _absent(*_OUTPUTS), A2_CLASS),
    ),
    examples=(
        Example(
            {
                **{name: (T(FLOAT, (2, 2, 2)), [2, 3, 4, 5, 2, 3, 4, 5]) for name in ("gradOut", "input")},
                "rstd": (T(FLOAT, (2, 2, 1)), [4, 5, 6, 7]),
                "mean": (T(FLOAT, (2, 2, 1)), [2, 3, 4, 5]),
                **{name: (T(FLOAT, (2, 2)), [1, 1, 2, 2]) for name in ("scale", "shift")},
                "weightOptional": (T(FLOAT, (2,)), [1, 1]),
                "biasOptional": (T(FLOAT, (2,)), [0, 0]),
            },
            {"normalizedShape": (2,)},
            {
                "gradInputOut": "-4.000000 -188.000000 -1755.000000 -3495.000000 -4545.000000 -2259.000000 "
                "-2068.500000 10.500000",
                "gradScaleOut": "20.000000 62.000000 -52.000000 -18.000000",
                "gradShiftOut": "6.000000 8.000000 6.000000 8.000000",
                "gradWeightOut": "-116.000000 70.000000",
                "gradBiasOut": "30.000000 40.000000",
            },
        ),
    ),
)
