"""aclnnLayerNorm and its gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.operators import BY_NAME
from tests.cases.table import (
    A2_CLASS,
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    MODERN,
    NINE,
    NO_KERNEL,
    NOT_950,
    NULL,
    OLD,
    ON_950,
    ONLY_950,
    Accepted,
    Arguments,
    Case,
    Change,
    Example,
    Rejected,
    Shape,
    T,
    dtype,
    every_null,
    other,
    shape,
)
from tests.helpers import normalization

_LAYER_NORM_OUTPUTS = ("gradInputOut", "gradWeightOut", "gradBiasOut")


def _layer_norm_call(d: D) -> Arguments:
    return {
        "gradOut": T(d, (2, 3)),
        "input": T(d, (2, 3)),
        "normalizedShape": (3,),
        "mean": T(d, (2, 1)),
        "rstd": T(d, (2, 1)),
        "weightOptional": T(d, (3,)),
        "biasOptional": T(d, (3,)),
        "outputMask": (True, True, True),
        "gradInputOut": T(d, (2, 3)),
        "gradWeightOut": T(d, (3,)),
        "gradBiasOut": T(d, (3,)),
    }


def _rows_and_columns(rows: tuple[int, ...], columns: tuple[int, ...], mean: tuple[int, ...] | None = None) -> Change:
    ones = (1,) * len(columns)
    return {
        **shape(rows + columns, "gradOut", "input", "gradInputOut"),
        **shape(rows + ones if mean is None else mean, "mean", "rstd"),
        **shape(columns, "weightOptional", "biasOptional", "gradWeightOut", "gradBiasOut"),
        "normalizedShape": columns,
    }


def _rows_and_columns_of_at_least_one(rows: Shape, columns: Shape) -> Change:
    # A mean has a dimension, a normalised shape too.
    columns = columns or (1,)
    return _rows_and_columns(rows, columns)


_LAYER_NORM_DTYPES = "data type: gradOut, input, mean, rstd"
_LAYER_NORM_PRESENT = "present: gradOut, input, normalizedShape, mean, rstd, outputMask"


def _layer_norm_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    any_of = st.sampled_from(FLOATS)
    free = ("mean", "rstd", "biasOptional", *_LAYER_NORM_OUTPUTS)
    change: dict[str, Any] = {name: {"dtype": draw(any_of)} for name in free}
    change |= dtype(draw(st.sampled_from((FLOAT, arguments["input"].dtype))), "weightOptional")
    change["outputMask"] = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    if draw(st.booleans()):
        change |= {"weightOptional": None, "biasOptional": None}
    return change


LAYER_NORM_BACKWARD = Case(
    mixed=_layer_norm_mixed,
    reshape=_rows_and_columns_of_at_least_one,
    reference=normalization.backward,
    operator=BY_NAME["layer_norm_backward"],
    python=aclnn.layer_norm_backward,
    call=_layer_norm_call,
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_200I_500_A2: (NO_KERNEL, "product")},
    rejected=(
        *every_null(_LAYER_NORM_PRESENT, "gradOut input normalizedShape mean rstd outputMask"),
        Rejected("three mask values", {"outputMask": (True, True)}, "outputMask", "3 values", "2"),
        Rejected("three mask values", {"outputMask": (False,) * 4}, "outputMask", "3 values", "4"),
        *(
            Rejected("requested outputs present", {name: None}, name, f"outputMask[{i}] is true", "null", NULL)
            for i, name in enumerate(_LAYER_NORM_OUTPUTS)
        ),
        *(
            rejection
            for name in ("gradOut", "input", "mean", "rstd")
            for rejection in (
                Rejected(_LAYER_NORM_DTYPES, dtype(D.DOUBLE, name), name, "data type ACL_FLOAT", "ACL_DOUBLE"),
                Rejected(
                    _LAYER_NORM_DTYPES,
                    dtype(BF16, name),
                    name,
                    "data type ACL_FLOAT or ACL_FLOAT16",
                    "ACL_BF16",
                    products=OLD,
                ),
            )
        ),
        Rejected("same data type as input: gradOut", dtype(other, "gradOut"), "gradOut", "that of input", "ACL_FLOAT"),
        Rejected(
            "data type: weightOptional", dtype(D.INT8, "weightOptional"), "weightOptional", "data type", "ACL_INT8"
        ),
        Rejected(
            "data type of input or float32: weightOptional",
            dtype(FLOAT16, "weightOptional"),
            "weightOptional",
            "data type ACL_FLOAT",
            "ACL_FLOAT16",
            dtypes=(FLOAT, BF16),
        ),
        Rejected(
            "data type of input or float32: weightOptional",
            dtype(BF16, "weightOptional"),
            "weightOptional",
            "data type ACL_FLOAT or ACL_FLOAT16",
            "ACL_BF16",
            products=MODERN,
            dtypes=(FLOAT16,),
        ),
        Rejected("data type: biasOptional", dtype(D.BOOL, "biasOptional"), "biasOptional", "data type", "ACL_BOOL"),
        *(
            Rejected(
                "data type: gradInputOut, gradWeightOut, gradBiasOut",
                dtype(D.UINT64, name) | {"outputMask": mask},
                name,
                "data type ACL_FLOAT",
                "ACL_UINT64",
            )
            for name in _LAYER_NORM_OUTPUTS
            for mask in ((True, True, True), (False, False, False))
        ),
        *(
            Rejected(
                "at most 8 dimensions: gradOut, input, mean, rstd",
                shape(NINE, name),
                name,
                "at most 8 dimensions",
                "9",
            )
            for name in ("gradOut", "input", "mean", "rstd")
        ),
        Rejected(
            "at most 8 dimensions: normalizedShape",
            {"normalizedShape": NINE},
            "normalizedShape",
            "at most 8 dimensions",
            "9",
        ),
        *(
            Rejected("at most 8 dimensions: outputs", shape((1,) * 8 + (3,), name), name, "at most 8 dimensions", "9")
            for name in _LAYER_NORM_OUTPUTS
        ),
        Rejected(
            "at least 1 dimension: normalizedShape",
            {"normalizedShape": ()},
            "normalizedShape",
            "at least 1 dimension",
            "0",
        ),
        *(
            Rejected("at least 1 dimension: mean, rstd, outputs", shape((), name), name, "at least 1 dimension", "0")
            for name in ("mean", "rstd", *_LAYER_NORM_OUTPUTS)
        ),
        Rejected(
            "rank of input covers normalizedShape",
            {"normalizedShape": (1, 2, 3)},
            "input",
            "at least 3 dimensions",
            "2",
        ),
        Rejected(
            "rank of input covers normalizedShape", shape((), "gradOut", "input"), "input", "at least 1 dimensions", "0"
        ),
        Rejected("trailing dimensions of input", {"normalizedShape": (4,)}, "input", "trailing dimensions [4]", "[3]"),
        Rejected(
            # The case that the vendor's loop would leave to the later checks.
            "trailing dimensions of input",
            {"normalizedShape": (1, 3)},
            "input",
            "trailing dimensions [1, 3]",
            "[2, 3]",
        ),
        Rejected(
            "at most 8 dimensions: weightOptional",
            shape((1,) * 8 + (3,), "weightOptional"),
            "weightOptional",
            "at most 8 dimensions",
            "9",
        ),
        Rejected(
            "shape is normalizedShape: weightOptional",
            shape((1, 3), "weightOptional"),
            "weightOptional",
            "shape [3]",
            "[1, 3]",
        ),
        Rejected(
            "shape is normalizedShape: weightOptional",
            shape((4,), "weightOptional"),
            "weightOptional",
            "shape [3]",
            "[4]",
        ),
        Rejected(
            "at most 8 dimensions: biasOptional",
            shape((1,) * 8 + (3,), "biasOptional"),
            "biasOptional",
            "at most 8 dimensions",
            "9",
        ),
        Rejected(
            "shape is normalizedShape: biasOptional", shape((), "biasOptional"), "biasOptional", "shape [3]", "[]"
        ),
        Rejected("same shape as input: gradOut", shape((1, 3), "gradOut"), "gradOut", "shape [2, 3]", "[1, 3]"),
        Rejected("same shape as rstd: mean", shape((2,), "mean"), "mean", "shape [2, 1]", "[2]"),
        Rejected("one mean a row", shape((2, 3), "mean", "rstd"), "mean", "2 elements", "6"),
        Rejected(
            "same shape as input: gradInputOut", shape((3, 2), "gradInputOut"), "gradInputOut", "shape [2, 3]", "[3, 2]"
        ),
        *(
            Rejected("one gradient a column: gradWeightOut, gradBiasOut", shape((2,), name), name, "3 elements", "2")
            for name in _LAYER_NORM_OUTPUTS[1:]
        ),
    ),
    together={("same shape as rstd: mean", "one mean a row"): shape((3, 1), "mean")},
    accepted=(
        Accepted("no rows", _rows_and_columns((0,), (3,))),
        Accepted("no rows, two masks", _rows_and_columns((2, 0), (3,)) | {"outputMask": (True, False, True)}),
        Accepted("no columns", _rows_and_columns((5,), (0, 3))),
        Accepted("neither", _rows_and_columns((0,), (0,))),
        Accepted("no leading dimensions", _rows_and_columns((), (3,), mean=(1,))),
        Accepted("8 dimensions", _rows_and_columns((2, 1, 2, 1), (2, 1, 1, 3))),
        Accepted("one column", _rows_and_columns((4,), (1,))),
        Accepted("flat mean", _rows_and_columns((3, 2), (2, 2), mean=(6,))),
        Accepted("mean without the ones", _rows_and_columns((3, 2), (2, 2), mean=(3, 2))),
        Accepted("no weight", {"weightOptional": None}),
        Accepted("no bias", {"biasOptional": None}),
        Accepted("no mask", {"outputMask": (False, False, False), **dict.fromkeys(_LAYER_NORM_OUTPUTS)}),
        Accepted("only dx", {"outputMask": (True, False, False), "gradWeightOut": None, "gradBiasOut": None}),
        Accepted("only dw", {"outputMask": (False, True, False), "gradInputOut": None, "gradBiasOut": None}),
        Accepted("only db", {"outputMask": (False, False, True), "gradWeightOut": None, "gradInputOut": None}),
        Accepted("unwanted outputs given", {"outputMask": (False, True, False)}),
        Accepted("unwanted outputs of any shape", {"outputMask": (False, False, True)} | shape((7, 7), "gradInputOut")),
        Accepted("shape of a gradient", shape((3, 1), "gradWeightOut") | shape((1, 3), "gradBiasOut")),
        Accepted("float32 statistics and weight", dtype(FLOAT, "mean", "rstd", "weightOptional", "gradInputOut")),
        Accepted("statistics of two types", dtype(FLOAT16, "mean") | dtype(FLOAT, "rstd")),
        Accepted("bias of another type", dtype(FLOAT16, "biasOptional")),
        Accepted("float16 gradients", dtype(FLOAT16, *_LAYER_NORM_OUTPUTS)),
        Accepted("bfloat16 gradients", dtype(BF16, *_LAYER_NORM_OUTPUTS), MODERN),
        Accepted("any formats", {"gradOut": {"format": Format.FORMAT_NDHWC}, "input": {"format": Format.FORMAT_NCDHW}}),
    ),
    examples=(
        Example(
            {
                "gradOut": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "input": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "mean": (T(FLOAT, (2, 1)), [2.0, 3.0]),
                "rstd": (T(FLOAT, (2, 1)), [4.0, 5.0]),
                "weightOptional": (T(FLOAT, (2,)), [1.0, 1.0]),
                "biasOptional": (T(FLOAT, (2,)), [0.0, 0.0]),
            },
            {"normalizedShape": (2,), "outputMask": (True, True, True)},
            {
                "gradInputOut": "-2.000000 -94.000000 -877.500000 -1747.500000",
                "gradWeightOut": "20.000000 62.000000",
                "gradBiasOut": "6.000000 8.000000",
            },
        ),
    ),
)


_STATISTICS = ("meanOutOptional", "rstdOutOptional")


def _layer_norm_forward_call(d: D) -> Arguments:
    return {
        "input": T(d, (2, 3)),
        "normalizedShape": (3,),
        "weightOptional": T(d, (3,)),
        "biasOptional": T(d, (3,)),
        "eps": 1e-5,
        "out": T(d, (2, 3)),
        "meanOutOptional": T(FLOAT, (2, 1)),
        "rstdOutOptional": T(FLOAT, (2, 1)),
    }


def _layer_norm_forward_reshape(rows: Shape, columns: Shape) -> Change:
    columns = columns or (1,)
    return {
        **shape(rows + columns, "input", "out"),
        **shape(rows + (1,) * len(columns), *_STATISTICS),
        **shape(columns, "weightOptional", "biasOptional"),
        "normalizedShape": columns,
    }


def _layer_norm_forward_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few mixes: the kernel is compiled for each.
    out, statistic = draw(st.sampled_from(((FLOAT, FLOAT), (BF16, FLOAT16))))
    absent = ("weightOptional", "biasOptional") if draw(st.booleans()) else ()
    return {**dtype(out, "out"), **dtype(statistic, *_STATISTICS), **dict.fromkeys(absent)}


def _fast_layer_norm_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    mixed = dict(_layer_norm_forward_mixed(draw, product, arguments))
    del mixed["out"]
    return mixed


_WITH_8 = (1,) * 8 + (3,)
_AT_MOST_8 = "at most 8 dimensions: input, out, weightOptional, biasOptional, meanOutOptional, rstdOutOptional"


_LAYER_NORM_ROWS = (
    *every_null("present: input, normalizedShape, out", "input normalizedShape out"),
    *(
        Rejected("data type: input, weightOptional", dtype(D.DOUBLE, n), n, "data type ACL_FLOAT", "ACL_DOUBLE")
        for n in ("input", "weightOptional")
    ),
    Rejected(
        "data type of input or float32: weightOptional",
        dtype(FLOAT16, "weightOptional"),
        "weightOptional",
        "data type ACL_FLOAT",
        "ACL_FLOAT16",
        dtypes=(FLOAT, BF16),
    ),
    Rejected("data type: biasOptional", dtype(D.BOOL, "biasOptional"), "biasOptional", "data type", "ACL_BOOL"),
    Rejected(
        "data type of input or float32: biasOptional",
        dtype(FLOAT16, "biasOptional"),
        "biasOptional",
        "data type ACL_FLOAT",
        "ACL_FLOAT16",
        dtypes=(FLOAT, BF16),
    ),
    Rejected(
        "one data type: weightOptional, biasOptional",
        dtype(FLOAT, "biasOptional"),
        "biasOptional",
        "that of weightOptional",
        "ACL_FLOAT",
        dtypes=(FLOAT16, BF16),
    ),
    *(
        Rejected(
            "data type: out, meanOutOptional, rstdOutOptional", dtype(D.INT64, n), n, "data type ACL_FLOAT", "ACL_INT64"
        )
        for n in ("out", *_STATISTICS)
    ),
    *(
        Rejected(_AT_MOST_8, shape(_WITH_8, n), n, "at most 8 dimensions", "9")
        for n in ("input", "out", "weightOptional", "biasOptional", *_STATISTICS)
    ),
    Rejected(
        "at most 8 dimensions: normalizedShape",
        {"normalizedShape": NINE},
        "normalizedShape",
        "at most 8 dimensions",
        "9",
    ),
    Rejected(
        "at least 1 dimension: normalizedShape", {"normalizedShape": ()}, "normalizedShape", "at least 1 dimension", "0"
    ),
    Rejected(
        "rank of input covers normalizedShape", {"normalizedShape": (1, 2, 3)}, "input", "at least 3 dimensions", "2"
    ),
    *(
        Rejected(
            "rank of normalizedShape: weightOptional, biasOptional",
            shape((1, 3), n),
            n,
            "1 dimensions (as normalizedShape)",
            "2",
        )
        for n in ("weightOptional", "biasOptional")
    ),
    Rejected("trailing dimensions of input", {"normalizedShape": (4,)}, "input", "trailing dimensions [4]", "[3]"),
    *(
        Rejected("shape is normalizedShape: weightOptional, biasOptional", shape((4,), n), n, "shape [3]", "[4]")
        for n in ("weightOptional", "biasOptional")
    ),
    Rejected("same shape as input: out", shape((3, 2), "out"), "out", "shape [2, 3]", "[3, 2]"),
    *(
        Rejected(
            "one statistic a row: meanOutOptional, rstdOutOptional" + ON_950,
            shape((2,), n),
            n,
            "shape [2, 1]",
            "[2]",
            products=ONLY_950,
        )
        for n in _STATISTICS
    ),
    *(
        Rejected(
            "room for every row's statistic: meanOutOptional, rstdOutOptional",
            shape((3,), n),
            n,
            "2 elements",
            "3",
            products=NOT_950,
        )
        for n in _STATISTICS
    ),
    Rejected(
        # An empty one passes the 950 class's check of its shape.
        "room for every row's statistic: meanOutOptional, rstdOutOptional",
        shape((0,), "rstdOutOptional"),
        "rstdOutOptional",
        "2 elements",
        "0",
    ),
)


_LAYER_NORM_NEVER = frozenset(
    {
        # normalizedShape has too many dimensions, none, or too many for input.
        ("at most 8 dimensions: normalizedShape", "at least 1 dimension: normalizedShape"),
        ("at least 1 dimension: normalizedShape", "rank of input covers normalizedShape"),
    }
)


LAYER_NORM = Case(
    operator=BY_NAME["layer_norm"],
    python=aclnn.layer_norm,
    call=_layer_norm_forward_call,
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_INFERENCE: (NO_KERNEL, "product")},
    rejected=_LAYER_NORM_ROWS,
    reshape=_layer_norm_forward_reshape,
    mixed=_layer_norm_forward_mixed,
    reference=normalization.forward,
    never_together=_LAYER_NORM_NEVER,
    together={
        ("data type of input or float32: weightOptional", "data type: biasOptional"): (
            dtype(FLOAT16, "weightOptional") | dtype(D.BOOL, "biasOptional")
        ),
    },
    accepted=(
        Accepted("no rows", _layer_norm_forward_reshape((0,), (3,))),
        Accepted("no columns", _layer_norm_forward_reshape((5,), (0, 3)) | dict.fromkeys(_STATISTICS)),
        Accepted("only statistics of no columns", _layer_norm_forward_reshape((5,), (0, 3))),
        Accepted("no leading dimensions", _layer_norm_forward_reshape((), (3,))),
        Accepted("8 dimensions", _layer_norm_forward_reshape((2, 1, 2, 1), (2, 1, 1, 3))),
        Accepted("no weight", {"weightOptional": None}),
        Accepted("no bias", {"biasOptional": None}),
        Accepted("no statistics", dict.fromkeys(_STATISTICS)),
        Accepted("float32 parameters", dtype(FLOAT, "weightOptional", "biasOptional")),
        Accepted("other outputs", dtype(FLOAT, "out") | dtype(FLOAT16, *_STATISTICS)),
    ),
    examples=(
        Example(
            {
                "input": (T(FLOAT, (2, 2)), [2.0, 3.0, 4.0, 5.0]),
                "weightOptional": None,
                "biasOptional": None,
            },
            {"normalizedShape": (2,), "eps": 1e-5},
            {
                "out": "-0.999980 0.999980 -0.999980 0.999980",
                "meanOutOptional": "2.500000 4.500000",
                "rstdOutOptional": "1.999960 1.999960",
            },
        ),
    ),
)


_MOST_COLUMNS = 583_705_600
_TOO_LONG = _layer_norm_forward_reshape((2,), (_MOST_COLUMNS + 1,))

FAST_LAYER_NORM = replace(
    LAYER_NORM,
    operator=BY_NAME["fast_layer_norm"],
    python=aclnn.fast_layer_norm,
    dtypes=dict.fromkeys(A2_CLASS, FLOATS),
    unsupported=dict.fromkeys((Product.ASCEND_950, *OLD), (NO_KERNEL, "product")),
    rejected=(
        *(row for row in _LAYER_NORM_ROWS if "statistic" not in row.check),
        Rejected("same data type as input: out", dtype(other, "out"), "out", "data type ACL_", "ACL_FLOAT"),
        *(
            Rejected(
                "one statistic a row: meanOutOptional, rstdOutOptional", shape(got, n), n, "shape [2, 1]", f"{[*got]}"
            )
            for n in _STATISTICS
            for got in ((2,), (3, 1), (0,))
        ),
        Rejected(
            f"at most {_MOST_COLUMNS} columns: normalizedShape",
            _TOO_LONG,
            "normalizedShape",
            f"at most {_MOST_COLUMNS} elements in a row",
            str(_MOST_COLUMNS + 1),
            NO_KERNEL,
        ),
    ),
    mixed=_fast_layer_norm_mixed,
    accepted=(
        *(accepted for accepted in LAYER_NORM.accepted if accepted.name != "other outputs"),
        Accepted("other statistics", dtype(FLOAT16, *_STATISTICS)),
        Accepted(
            "no rows of too many columns",
            {
                **_layer_norm_forward_reshape((0,), (_MOST_COLUMNS + 1,)),
                **dict.fromkeys(("weightOptional", "biasOptional")),
            },
        ),
    ),
    examples=(
        Example(
            {
                "input": (T(FLOAT, (1, 2, 32)), [2.0] * 64),
                "weightOptional": (T(FLOAT, (32,)), [1.0] * 32),
                "biasOptional": (T(FLOAT, (32,)), [0.0] * 32),
            },
            {"normalizedShape": (32,), "eps": 1e-5},
            {
                "out": " ".join(["0.000000"] * 64),
                "meanOutOptional": "2.000000 2.000000",
                "rstdOutOptional": "316.227753 316.227753",
            },
        ),
    ),
)


LAYER_NORM_WITH_IMPL_MODE = replace(
    LAYER_NORM,
    operator=BY_NAME["layer_norm_with_impl_mode"],
    python=aclnn.layer_norm_with_impl_mode,
    call=lambda d: _layer_norm_forward_call(d) | {"implMode": 0},
    rejected=(
        *_LAYER_NORM_ROWS,
        *(Rejected("known mode: implMode", {"implMode": m}, "implMode", "0, 1 or 2", str(m)) for m in (-1, 3)),
        Rejected(
            "float16 for implMode 2: input, weightOptional, biasOptional",
            {"implMode": 2},
            "input",
            "data type ACL_FLOAT16",
            "ACL_",
            dtypes=(FLOAT, BF16),
        ),
        Rejected(
            "float16 for implMode 2: input, weightOptional, biasOptional",
            {"implMode": 2, **dtype(FLOAT, "weightOptional", "biasOptional")},
            "weightOptional",
            "data type ACL_FLOAT16",
            "ACL_FLOAT",
            dtypes=(FLOAT16,),
        ),
    ),
    # A mode is known or not; what follows is for one that is.
    never_together=frozenset({("known mode: implMode", "float16 for implMode 2: input, weightOptional, biasOptional")})
    | _LAYER_NORM_NEVER,
    accepted=(*LAYER_NORM.accepted, Accepted("high performance", {"implMode": 1})),
    examples=tuple(
        example._replace(attributes={**example.attributes, "implMode": 0}) for example in LAYER_NORM.examples
    ),
)
