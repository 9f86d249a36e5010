"""aclnnBatchNorm and its gradients."""

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
    BF16,
    FLOAT,
    FLOAT16,
    FLOATS,
    INVALID,
    MODERN,
    NINE,
    NO_KERNEL,
    NULL,
    ON_950,
    ONLY_950,
    PRODUCTS,
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
    misshapen,
    not_floating,
    other,
    shape,
)
from tests.helpers import norms

_KNOWN = tuple(product for product in PRODUCTS if product is not Product.ATLAS_200I_500_A2)
_SHAPE = (2, 4, 3)
_PARAMETERS = ("weight", "bias", "runningMean", "runningVar")
_SAVED = ("saveMean", "saveInvstd")
_FULL = " (unless input is empty)"
_TRAINED = " (training)"


def _call(d: D) -> Arguments:
    return {
        "input": T(d, _SHAPE),
        **dict.fromkeys(_PARAMETERS, T(d, (4,))),
        "training": True,
        "momentum": 0.1,
        "eps": 1e-5,
        "output": T(d, _SHAPE),
        **dict.fromkeys(_SAVED, T(d, (4,))),
    }


def _shape(rows: Shape, columns: Shape) -> Shape:
    given = norms.channels(rows, columns)
    return given if len(given) != 5 else (*given, 1)  # five dimensions need a format


def _reshape(rows: Shape, columns: Shape) -> Change:
    return _of_shape(_shape(rows, columns))


def _of_shape(given: Shape) -> Change:
    return {**shape(given, "input", "output"), **shape(given[1:2], *_PARAMETERS, *_SAVED)}


def _mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few combinations: each is a kernel of its own to compile.
    change: dict[str, Any] = dict(dtype(FLOAT, *_PARAMETERS, *_SAVED))
    change |= dict.fromkeys(draw(st.sampled_from((_PARAMETERS, _PARAMETERS[2:]))))
    return change | {"training": draw(st.booleans()), "momentum": draw(st.sampled_from((0.0, 0.1, 1.0)))}


def _unwritten(arguments: Arguments) -> frozenset[str]:
    empty = 0 in arguments["input"].shape
    return frozenset() if arguments["training"] or empty else frozenset(_SAVED)


def _formats(*names: str, got: Format = Format.FORMAT_ND) -> Change:
    return {name: {"format": got} for name in names}


def _video(*names: str, got: Format = Format.FORMAT_ND) -> Change:
    return {name: {"shape": (2, 4, 1, 1, 3), "format": got} for name in names}


_VIDEO, _DEEP = f"format of 5 dimensions: input, output{_FULL}", f"2 to 8 dimensions: input, output{_FULL}"

BATCH_NORM = Case(
    operator=BY_NAME["batch_norm"],
    python=aclnn.batch_norm,
    call=_call,
    dtypes=dict.fromkeys(MODERN, FLOATS)
    | dict.fromkeys((Product.ATLAS_INFERENCE, Product.ATLAS_TRAINING), (FLOAT, FLOAT16)),
    unsupported={Product.ATLAS_200I_500_A2: (INVALID, "product")},
    reference=norms.batch_forward,
    reshape=_reshape,
    mixed=_mixed,
    unwritten=_unwritten,
    rejected=(
        *every_null("present: input, output", "input output"),
        *every_null(f"present: saveMean, saveInvstd{_TRAINED}", "saveMean saveInvstd"),
        Rejected(
            f"kernel of the product{_FULL}",
            {},
            "product",
            "one with a kernel",
            "Atlas",
            products=(Product.ATLAS_200I_500_A2,),
        ),
        *not_floating("input", "output", where=_FULL, products=_KNOWN),
        *not_floating(*_SAVED, where=_TRAINED + _FULL, products=_KNOWN),
        Rejected(
            f"same data type as input: output{_FULL}",
            dtype(other, "output"),
            "output",
            "that of input",
            "ACL_FLOAT",
            products=_KNOWN,
        ),
        *not_floating(*_PARAMETERS, where=_FULL, products=_KNOWN),
        Rejected(
            f"same format as input: output{_FULL}",
            _formats("output", got=Format.FORMAT_NCL),
            "output",
            "that of input",
            "_NCL",
            products=_KNOWN,
        ),
        *(
            Rejected(_VIDEO, _video(name) | _formats(beside), name, "format ACL_FORMAT_NCDHW", "_ND", products=_KNOWN)
            for name, beside in (("input", "output"), ("output", "input"))
        ),
        Rejected(
            f"no private format: input, output{_FULL}",
            _formats("input", "output", got=Format.FORMAT_NC1HWC0),
            "input",
            "a format such as",
            "NC1HWC0",
            products=_KNOWN,
        ),
        *(
            Rejected(_DEEP, shape(got, name), name, "2 to 8 dimensions", str(len(got)), products=_KNOWN)
            for name in ("input", "output")
            for got in ((4,), NINE)
        ),
        Rejected(
            f"same shape as input: output{_FULL}",
            shape((2, 3, 4), "output"),
            "output",
            "shape [2, 4, 3]",
            "[2, 3, 4]",
            products=_KNOWN,
        ),
        *misshapen("[C]", (3,), *_PARAMETERS, where=_FULL, products=_KNOWN),
        *misshapen("[C]", (3,), *_SAVED, where=_TRAINED + _FULL, products=_KNOWN),
    ),
    together={
        (f"kernel of the product{_FULL}", f"data type: input, output{_FULL}"): dtype(D.DOUBLE, "input"),
        (_VIDEO, f"no private format: input, output{_FULL}"): _video("input", "output", got=Format.FORMAT_NC1HWC0),
    },
    accepted=(
        Accepted("no rows", _reshape((0,), (4, 3))),
        Accepted("no columns", _of_shape((0, 0, 3))),
        Accepted("no elements in a channel", _of_shape((2, 4, 0)), _KNOWN),
        Accepted("no elements, not in training", _of_shape((2, 4, 0)) | {"training": False}, _KNOWN),
        Accepted("2 dimensions", _of_shape((3, 6)), _KNOWN),
        Accepted("8 dimensions", _of_shape((2, 4, 1, 2, 1, 1, 2, 1)), _KNOWN),
        Accepted("one element a channel", _of_shape((1, 3)), _KNOWN),
        Accepted("not in training", {"training": False}, _KNOWN),
        Accepted("not in training, nothing saved", {"training": False, **dict.fromkeys(_SAVED)}, _KNOWN),
        Accepted("not in training, nothing given", {"training": False, **dict.fromkeys(_PARAMETERS)}, _KNOWN),
        Accepted("nothing given", dict.fromkeys(_PARAMETERS), _KNOWN),
        Accepted("float32 parameters", dtype(FLOAT, *_PARAMETERS, *_SAVED), _KNOWN),
        Accepted("video", _video("input", "output", got=Format.FORMAT_NCDHW), _KNOWN),
    ),
    examples=(
        Example(
            {
                "input": (T(FLOAT, (1, 2, 4)), [*map(float, range(8))]),
                "weight": (T(FLOAT, (2,)), [1.0, 1.0]),
                "bias": (T(FLOAT, (2,)), [0.0, 0.0]),
                "runningMean": (T(FLOAT, (2,)), [0.0, 0.0]),
                "runningVar": (T(FLOAT, (2,)), [1.0, 1.0]),
            },
            {"training": True, "momentum": 0.1, "eps": 1e-5},
            {
                "output": " ".join(["-1.341635 -0.447212 0.447212 1.341635"] * 2),
                "saveMean": "1.500000 5.500000",
                "saveInvstd": "1.250000 1.250000",
            },
        ),
        Example(
            {
                "input": (T(FLOAT, (2, 2, 2)), [1, -2, 3, 0.5, 0.25, 0, -1, 2]),
                "weight": (T(FLOAT, (2,)), [2.0, 0.5]),
                "bias": (T(FLOAT, (2,)), [0.5, -1.0]),
                "runningMean": None,
                "runningVar": None,
            },
            {"training": True, "momentum": 0.1, "eps": 1e-5},
            {
                "output": "2.641049 -2.767916 -0.381412 -1.206196 1.288807 0.838060 -1.701067 -0.711325",
                "saveMean": "-0.187500 1.125000",
                "saveInvstd": "1.230469 2.296875",
            },
        ),
    ),
)

_OUTPUTS = ("gradInput", "gradWeight", "gradBias")
_ABSENT = dict.fromkeys
_GRADIENT_FULL = " (unless input or gradOut is empty)"
_WANTED = f" (if requested){_GRADIENT_FULL}"
_RUNNING = ("runningMean", "runningVar")
_STATISTICS = (*_RUNNING, *_SAVED)


def _gradient_call(d: D) -> Arguments:
    return {
        "gradOut": T(d, _SHAPE),
        "input": T(d, _SHAPE),
        "weight": T(d, (4,)),
        **dict.fromkeys(_STATISTICS, T(d, (4,))),
        "training": True,
        "eps": 1e-5,
        "outputMask": (True, True, True),
        "gradInput": T(d, _SHAPE),
        "gradWeight": T(d, (4,)),
        "gradBias": T(d, (4,)),
    }


def _reshape_gradient(rows: Shape, columns: Shape) -> Change:
    return _gradient_of_shape(_shape(rows, columns))


def _gradient_of_shape(given: Shape) -> Change:
    return {
        **shape(given, "gradOut", "input", "gradInput"),
        **shape(given[1:2], "weight", *_STATISTICS, "gradWeight", "gradBias"),
    }


def _gradient_mixed(draw: st.DrawFn, product: Product, arguments: Arguments) -> Change:
    # Few combinations: each is a kernel of its own to compile.
    change: dict[str, Any] = {"outputMask": draw(st.sampled_from(((True,) * 3, (False, True, False))))}
    change |= dtype(FLOAT, "weight", *_STATISTICS, "gradWeight", "gradBias")
    change |= draw(st.sampled_from(({}, _ABSENT(("weight", *_RUNNING)))))
    return change | {"training": draw(st.booleans())}


def _gradient_unwritten(arguments: Arguments) -> frozenset[str]:
    return frozenset(_OUTPUTS) if 0 in arguments["input"].shape or 0 in arguments["gradOut"].shape else frozenset()


def _gradient_rejected(fast: bool) -> tuple[Rejected, ...]:
    full, wanted = _GRADIENT_FULL, _WANTED

    def only_950(check: str, change: Change, name: str, expected: str, got: str, **fields: Any) -> Rejected:
        return Rejected(f"{check}{full}", change, name, expected, got, products=ONLY_950, **fields)

    modern = (
        ()
        if fast
        else (
            *(
                only_950(
                    f"data type of gradOut or float32: weight, {', '.join(_STATISTICS)}{ON_950}",
                    dtype(FLOAT16, name),
                    name,
                    "data type ACL_",
                    "ACL_FLOAT16",
                    dtypes=(FLOAT, BF16),
                )
                for name in ("weight", *_STATISTICS)
            ),
            *(
                only_950(
                    f"same data type as {first}: {name} (with {first}){ON_950}",
                    dtype(FLOAT, name),
                    name,
                    f"that of {first}",
                    "ACL_FLOAT",
                    dtypes=(FLOAT16, BF16),
                )
                for first, name in (_RUNNING, _SAVED)
            ),
            only_950(
                f"same data type as gradOut: gradInput (if requested){ON_950}",
                dtype(other, "gradInput"),
                "gradInput",
                "that of gradOut",
                "ACL_FLOAT",
            ),
            *(
                only_950(
                    f"data type of weight or float32: gradWeight, gradBias (if requested){ON_950}",
                    dtype(FLOAT16, name),
                    name,
                    "data type ACL_",
                    "ACL_FLOAT16",
                    dtypes=(FLOAT, BF16),
                )
                for name in _OUTPUTS[1:]
            ),
            only_950(
                f"same data type as gradWeight: gradBias (with gradWeight) (if requested){ON_950}",
                dtype(FLOAT, "gradBias"),
                "gradBias",
                "that of gradWeight",
                "ACL_FLOAT",
                dtypes=(FLOAT16, BF16),
            ),
        )
    )
    video = (
        ()
        if fast
        else tuple(
            only_950(
                f"format of 5 dimensions: input, gradOut{ON_950}",
                _video(name) | _formats(beside, "gradInput"),
                name,
                "format ACL_FORMAT_NCDHW or ACL_FORMAT_NDHWC",
                "_ND",
            )
            for name, beside in (("input", "gradOut"), ("gradOut", "input"))
        )
    )
    return (
        *every_null("present: gradOut, input", "gradOut input"),
        *every_null(f"present: outputMask{full}", "outputMask"),
        Rejected(f"mask values{full}", {"outputMask": ()}, "outputMask", "3 values", "none", NULL),
        *(
            Rejected(f"three mask values{full}", {"outputMask": given}, "outputMask", "3 values", str(len(given)))
            for given in ((True,), (True, True), (False,) * 4)
        ),
        *(
            Rejected(f"requested outputs present{full}", {name: None}, name, "mask value is true", "null", NULL)
            for name in _OUTPUTS
        ),
        *not_floating("gradOut", "input", where=full),
        Rejected(
            f"same data type as gradOut: input{full}", dtype(other, "input"), "input", "that of gradOut", "ACL_FLOAT"
        ),
        *not_floating(*_OUTPUTS, where=wanted),
        *not_floating("weight", *_STATISTICS, where=full),
        *modern,
        Rejected(
            f"same format as input: gradOut{full}",
            _formats("gradOut", got=Format.FORMAT_NCL),
            "gradOut",
            "of input",
            "_NCL",
        ),
        Rejected(
            f"same format as gradOut: gradInput{wanted}",
            _formats("gradInput", got=Format.FORMAT_NCL),
            "gradInput",
            "of gradOut",
            "_NCL",
        ),
        *video,
        Rejected(
            f"no private format: gradOut, input{full}",
            _formats("gradOut", "input", "gradInput", got=Format.FORMAT_NC1HWC0),
            "gradOut",
            "a format such as",
            "NC1HWC0",
        ),
        *(
            Rejected(
                f"2 to 8 dimensions: input, gradOut{full}", shape(got, name), name, "2 to 8 dimensions", str(len(got))
            )
            for name in ("input", "gradOut")
            for got in ((4,), NINE)
        ),
        Rejected(
            f"same shape as input: gradOut{full}", shape((2, 3, 4), "gradOut"), "gradOut", "[2, 4, 3]", "[2, 3, 4]"
        ),
        Rejected(
            f"same shape as input: gradInput{wanted}", shape((2, 3), "gradInput"), "gradInput", "[2, 4, 3]", "[2, 3]"
        ),
        *misshapen("[C]", (3,), "weight", *_RUNNING, where=full),
        *(
            Rejected(
                f"shape is [C], or [0] outside of training: saveMean, saveInvstd{full}",
                shape(got, name),
                name,
                "shape [4] ([C])",
                str(list(got)),
            )
            for name in _SAVED
            for got in ((0,), (4, 1))
        ),
        *misshapen("[C]", (3,), *_OUTPUTS[1:], where=wanted),
    )


_GRADIENT_EXAMPLE: Any = (
    {
        "gradOut": (T(FLOAT, (1, 2, 4)), [*map(float, range(8))]),
        "input": (T(FLOAT, (1, 2, 4)), [*map(float, range(8))]),
        "weight": (T(FLOAT, (2,)), [1.0, 1.0]),
        "runningMean": (T(FLOAT, (2,)), [0.0, 0.0]),
        "runningVar": (T(FLOAT, (2,)), [1.0, 1.0]),
        "saveMean": (T(FLOAT, (2,)), [0.0, 0.0]),
        "saveInvstd": (T(FLOAT, (2,)), [1.0, 1.0]),
    },
    {"training": True, "eps": 1e-5, "outputMask": (True,) * 3},
    {
        "gradInput": "-1.499992 -3.999945 -6.499897 -8.999850 -127.498100 -157.997635 -188.497162 -218.996704",
        "gradWeight": "13.999930 125.999367",
        "gradBias": "6.000000 22.000000",
    },
)

_GRADIENT_SUPPORTED = (*MODERN, Product.ATLAS_TRAINING)

BATCH_NORM_BACKWARD = Case(
    operator=BY_NAME["batch_norm_backward"],
    python=aclnn.batch_norm_backward,
    call=_gradient_call,
    dtypes=dict.fromkeys(MODERN, FLOATS) | {Product.ATLAS_TRAINING: (FLOAT, FLOAT16)},
    unsupported=dict.fromkeys((Product.ATLAS_200I_500_A2, Product.ATLAS_INFERENCE), (NO_KERNEL, "product")),
    reference=norms.batch_backward,
    reshape=_reshape_gradient,
    mixed=_gradient_mixed,
    unwritten=_gradient_unwritten,
    rejected=_gradient_rejected(fast=False),
    together={
        (f"same format as input: gradOut{_GRADIENT_FULL}", f"same format as gradOut: gradInput{_WANTED}"): _formats(
            "gradOut", got=Format.FORMAT_NCL
        ),
        (
            f"format of 5 dimensions: input, gradOut{ON_950}{_GRADIENT_FULL}",
            f"no private format: gradOut, input{_GRADIENT_FULL}",
        ): _video("gradOut", "input", "gradInput", got=Format.FORMAT_NC1HWC0),
    },
    accepted=(
        Accepted("no rows", _reshape_gradient((0,), (4, 3))),
        Accepted("no columns", _gradient_of_shape((2, 4, 0)) | {"outputMask": None}),
        Accepted("2 dimensions", _gradient_of_shape((3, 6)), _GRADIENT_SUPPORTED),
        Accepted("8 dimensions", _gradient_of_shape((2, 4, 1, 2, 1, 1, 2, 1)), _GRADIENT_SUPPORTED),
        Accepted("one element a channel", _gradient_of_shape((1, 3)), _GRADIENT_SUPPORTED),
        Accepted("not in training", {"training": False}, _GRADIENT_SUPPORTED),
        Accepted("not in training, nothing saved", {"training": False} | shape((0,), *_SAVED), _GRADIENT_SUPPORTED),
        Accepted("nothing given", _ABSENT(("weight", *_STATISTICS)), _GRADIENT_SUPPORTED),
        Accepted(
            "float32 parameters", dtype(FLOAT, "weight", *_STATISTICS, "gradWeight", "gradBias"), _GRADIENT_SUPPORTED
        ),
        Accepted("none wanted", {"outputMask": (False,) * 3, **_ABSENT(_OUTPUTS)}, _GRADIENT_SUPPORTED),
        Accepted("video", _video("gradOut", "input", "gradInput", got=Format.FORMAT_NCDHW), _GRADIENT_SUPPORTED),
    ),
    examples=(Example(*_GRADIENT_EXAMPLE),),
)

FAST_BATCH_NORM_BACKWARD = replace(
    BATCH_NORM_BACKWARD,
    operator=BY_NAME["fast_batch_norm_backward"],
    python=aclnn.fast_batch_norm_backward,
    call=lambda d: _gradient_call(d) | {"version": 0},
    dtypes={Product.ATLAS_A2: FLOATS},
    unsupported=dict.fromkeys((p for p in PRODUCTS if p is not Product.ATLAS_A2), (NO_KERNEL, "product")),
    rejected=_gradient_rejected(fast=True),
    together=dict([*BATCH_NORM_BACKWARD.together.items()][:1]),
    accepted=tuple(
        accepted if accepted.products == PRODUCTS else accepted._replace(products=(Product.ATLAS_A2,))
        for accepted in BATCH_NORM_BACKWARD.accepted
    ),
    examples=(Example(_GRADIENT_EXAMPLE[0], _GRADIENT_EXAMPLE[1] | {"version": 0}, _GRADIENT_EXAMPLE[2]),),
)
