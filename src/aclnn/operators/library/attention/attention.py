"""aclnnFlashAttentionScore with its variants and gradients, of samples or of packed sequences.

Dropout masks drawn from ``seed`` and ``offset`` follow ``drawing``, since no document specifies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dtype_in,
    each,
    elsewhere,
    extents,
    fits,
    floating,
    listing,
    one_of,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_shape,
    unless_empty,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
)
from aclnn.operators.library.attention.scores import (
    ADD_FIRST,
    BAND,
    FIRST_BAND,
    LAST_BAND,
    LAYOUTS,
    LEFT,
    PREFIX,
    REPEATS,
    RIGHT,
    ROOTS,
    SHORT_PREFIX,
    SLOPES,
    Form,
    Shape,
    attend,
    gradients,
)
from aclnn.operators.library.common import MODERN, attribute, support
from aclnn.operators.library.creation.drawing import generator_of, random_bits

_LARGEST_HEAD = 768
"""Maximum head dimension."""
FAR = 1 << 32
"""More tokens than in any sequence."""
_COMPRESSED = dict.fromkeys((LEFT, RIGHT, BAND, LAST_BAND, FIRST_BAND), (2048, 2048)) | {SHORT_PREFIX: (3072, 2048)}
"""Shapes of compressed masks, whose values are ignored: the mode determines what is masked."""
_PACKED_DATA = "same_as_input"
_ROPE, _ROPE_GRADIENTS, _ROPE_STEP = "queryRope", ("dqRopeOut", "dkRopeOut"), 8
"""Rotary parts: the query's name, the gradients' names, and the divisor of their head dimension."""
_QUERIES, _KEYS = "actualSeqQLenOptional", "actualSeqKvLenOptional"
"""Names of the cumulative lengths of packed sequences, for queries and for keys."""
_ABSENT = (*("queryRopeOptional", "keyRopeOptional"), *(f"dScale{of}Optional" for of in ("Q", "K", "V", "Dy", "O")))
"""Rotary parts, and scales of 8-bit data, which are not supported."""


class _Names(NamedTuple):
    """Tensor names that differ between the forward function and the gradient."""

    key: str
    rope: str
    """Rotary part of the key; the query's is queryRope in both."""
    bias: str
    sink: str
    largest: str
    total: str
    attention: str
    outputs: tuple[str, ...]
    """Outputs of every call."""


_FORWARD = _Names(
    *("key", "keyRope", "realShiftOptional", "sinkOptional", "softmaxMaxOut", "softmaxSumOut", "attentionOutOut"),
    outputs=("softmaxMaxOut", "softmaxSumOut", "attentionOutOut"),
)
_BACKWARD = _Names(
    *(
        "keyIn",
        "keyInRope",
        "pseShiftOptional",
        "sinkInOptional",
        "softmaxMaxOptional",
        "softmaxSumOptional",
        "attentionInOptional",
    ),
    outputs=("dqOut", "dkOut", "dvOut"),
)


def _names(call: Call) -> _Names:
    return _BACKWARD if "dy" in call.arguments else _FORWARD


def given(call: Call, name: str) -> bool:
    """Return True if an optional tensor is given: one without dimensions or elements counts as absent."""
    tensor = call.arguments.get(name)
    return tensor is not None and bool(tensor.shape) and tensor.size > 0


def _layout(call: Call) -> str:
    return str(call["inputLayout"]).upper()


def _sizes(call: Call, name: str) -> dict[str, int]:
    """Return the extents of query, key or value: B and S, or T, and N heads of dimension D."""
    sizes = dict(zip(_layout(call), call[name].shape, strict=True))
    if "H" in sizes:
        elements, key = sizes.pop("H"), _names(call).key
        if name == "value":
            sizes["N"] = _sizes(call, key)["N"]
            sizes["D"] = elements // max(1, sizes["N"])
        else:
            sizes["D"] = call["query"].shape[2] // call["headNum"]
            sizes["N"] = call["headNum"] if name == "query" else elements // max(1, sizes["D"])
    return sizes


def _form(call: Call) -> Form:
    arguments, layout = call.arguments, _layout(call)
    first, second = (arguments.get(name) or (0,) for name in ("qStartIdxOptional", "kvStartIdxOptional"))
    text = arguments.get("softmaxOutLayout" if "softmaxOutLayout" in arguments else "softmaxInLayout")
    lengths = (arguments.get(name) or () for name in (_QUERIES, _KEYS))
    queries, keys = (tuple(each) for each in lengths)
    return Form(
        layout,
        call["headNum"],
        _sizes(call, _names(call).key)["N"],
        (queries, keys) if layout == "TND" else ((), ()),
        call["scaleValue"],
        call["keepProb"],
        max(-FAR, min(call["preTokens"], FAR)),
        max(-FAR, min(call["nextTokens"], FAR)),
        call["sparseMode"],
        arguments.get("pseType", ADD_FIRST),
        second[0] - first[0],
        tuple(arguments.get("prefixOptional") or ()),
        text != _PACKED_DATA,
    )


def _scores_count(call: Call) -> int:
    """Return the number of scores of all samples and heads."""
    queries, keys = (_lengths(call, which) for which in (0, 1))
    return int(call["headNum"]) * sum(one * other for one, other in zip(queries, keys, strict=False))


def _lengths(call: Call, which: int) -> list[int]:
    """Return the number of queries, or of keys, of each sample."""
    if _layout(call) == "TND":
        name = (_QUERIES, _KEYS)[which]
        return [max(0, end - begin) for begin, end in pairwise((0, *(call[name] or ())))]
    sizes = _sizes(call, ("query", _names(call).key)[which])
    return [sizes["S"]] * sizes["B"]


def _tensors(call: Call, names: Mapping[str, str]) -> dict[str, str]:
    """Return the given tensors' names, by the computation's names."""
    return {word: name for word, name in names.items() if given(call, name)}


def _drawn(call: Call) -> Callable[[], dict[str, Any]]:
    """Return a function that draws the dropout mask if none is given."""
    if call["keepProb"] == 1 or given(call, "dropMaskOptional") or "seed" not in call.arguments:
        return dict
    source, size, drop = generator_of(call), -(-_scores_count(call) // 8), 1 - call["keepProb"]
    return lambda: {"bits": random_bits(source(), size, drop)}


def _inputs(call: Call) -> dict[str, str]:
    names = _names(call)
    found = {"query": "query", "key": names.key, "value": "value"}
    optional = {"bias": names.bias, "mask": "attenMaskOptional", "sink": names.sink}
    optional |= {"query_rope": _ROPE, "key_rope": names.rope}
    if call["keepProb"] < 1:
        optional["bits"] = "dropMaskOptional"
    return found | _tensors(call, optional)


def _with_ropes(arrays: dict[str, Any]) -> dict[str, Any]:
    """Concatenate rotary parts to the heads of queries and keys: scores are the sums of both products."""
    for word in ("query", "key"):
        rope = arrays.pop(f"{word}_rope", None)
        if rope is not None:
            arrays[word] = np.concatenate((arrays[word], rope), -1)
    return arrays


def _forward_work(call: Call) -> Library | None:
    outputs = _FORWARD.outputs
    if all(call[name].size == 0 for name in outputs):
        return None
    words = _inputs(call)
    form, draw = _form(call), _drawn(call)
    largest, total, attention = (call[name].shape for name in outputs)

    def compute(*arrays: Any) -> tuple[Any, ...]:
        operands = _with_ropes(draw() | dict(zip(words, arrays, strict=True)))
        return attend(form, (largest, total, attention), operands)

    return Library(compute, tuple(words.values()), outputs)


def _backward_work(call: Call) -> Library | None:
    outputs = [*_BACKWARD.outputs]
    if all(call[name].size == 0 for name in outputs):
        return None
    words = _inputs(call)
    words |= {"dy": "dy", "largest": _BACKWARD.largest, "total": _BACKWARD.total, "attention": _BACKWARD.attention}
    form, draw = _form(call), _drawn(call)
    outer = "bias" in words and form.bias_type not in (SLOPES, ROOTS)
    wanted = {"dbias": outer and given(call, "dpseOut"), "dsink": "sink" in words and given(call, "dsinkOut")}
    outputs += [name for name, is_wanted in zip(("dpseOut", "dsinkOut"), wanted.values(), strict=True) if is_wanted]
    shapes = [call[name].shape for name in outputs]
    ropes = _ROPE_GRADIENTS if _has_ropes(call) else ()
    widths = [call[name].shape[-1] for name in outputs[: len(ropes)]]
    for at, name in enumerate(ropes):
        shapes[at] = (*shapes[at][:-1], widths[at] + call[name].shape[-1])

    def compute(*arrays: Any) -> tuple[Any, ...]:
        found = gradients(form, tuple(shapes), _with_ropes(draw() | dict(zip(words, arrays, strict=True))) | wanted)
        parts = [np.split(each, (width,), -1) for each, width in zip(found, widths, strict=False)]
        return (*(own for own, _ in parts), *found[len(parts) :], *(rope for _, rope in parts))

    return Library(compute, tuple(words.values()), (*outputs, *ropes))


def _dimensions(call: Call) -> str | None:
    layout, packs = _layout(call), _QUERIES in call.arguments
    allowed = [each for each in LAYOUTS if "seed" in call.arguments or (each == "TND") == packs]
    if layout not in allowed:
        return f"inputLayout: expected {listing(allowed)}, got {call['inputLayout']!r}"
    for name in ("query", _names(call).key, "value"):
        if len(call[name].shape) != len(layout):
            return f"{name}: expected {len(layout)} dimensions ({layout}), got {extents(call[name].shape)}"
    return None


def _heads(call: Call) -> str | None:
    heads, key = call["headNum"], _names(call).key
    query, keys, values = (_sizes(call, name) for name in ("query", key, "value"))
    if query["N"] != heads:
        return f"headNum: expected {query['N']} (the heads of query), got {heads}"
    for name, sizes in (("query", query), (key, keys), ("value", values)):
        if call[name].shape[2] != sizes["N"] * sizes["D"] and "H" in _layout(call):
            return f"{name}: expected {sizes['N']} whole heads in dimension 2, got {extents(call[name].shape)}"
    if keys["D"] != query["D"]:
        return f"{key}: expected heads of {query['D']} elements (as query), got {keys['D']}"
    if values["D"] > keys["D"]:
        return f"value: expected heads of at most {keys['D']} elements (those of {key}), got {values['D']}"
    if query["D"] > _LARGEST_HEAD:
        return f"query: expected heads of at most {_LARGEST_HEAD} elements, got {query['D']}"
    if query["N"] % max(1, keys["N"]):
        return f"{key}: expected a number of heads that divides {query['N']} (those of query), got {keys['N']}"
    return None


def _as_many(call: Call) -> str | None:
    key = _names(call).key
    query, keys, values = (_sizes(call, name) for name in ("query", key, "value"))
    for name, got, other, expected, dims in ((key, keys, "query", query, "B"), ("value", values, key, keys, "BSTN")):
        for dim in dims:
            if got.get(dim) != expected.get(dim):
                return f"{name}: expected {dim} to be {expected[dim]} (as of {other}), got {extents(call[name].shape)}"
    return None


def _attention_shape(call: Call) -> Shape:
    query, value = call["query"].shape, _sizes(call, "value")
    return (*query[:-1], value["D"] * (call["headNum"] if "H" in _layout(call) else 1))


def _statistic_shape(call: Call, name: str) -> str | None:
    sizes, got = _sizes(call, "query"), call[name].shape
    if "T" in sizes:
        expected: list[Shape] = [(sizes["T"], sizes["N"], REPEATS), (sizes["N"], sizes["T"], REPEATS)]
    else:
        expected = [(sizes["B"], sizes["N"], sizes["S"], REPEATS)]
    return None if got in expected else f"expected shape {listing(map(extents, expected))}, got {extents(got)}"


def _sequences(call: Call) -> str | None:
    names = _QUERIES, _KEYS
    for name, tensor in zip(names, ("query", _names(call).key), strict=True):
        if _layout(call) != "TND":
            return None
        if not call[name]:
            return f"{name}: expected the ends of sequences (inputLayout TND), got none"
        most = max(call[name])
        if min(call[name]) < 0 or most > call[tensor].shape[0]:
            return f"{name}: expected ends up to {call[tensor].shape[0]} (T of {tensor}), got {extents(call[name])}"
    queries, keys = (call[name] for name in names)
    if len(queries) != len(keys):
        return f"{names[1]}: expected {len(queries)} ends (as many as {names[0]}), got {len(keys)}"
    return None


def _known_mode(call: Call) -> str | None:
    packed, got = _layout(call) == "TND", call["sparseMode"]
    allowed = [mode for mode in range(9 if packed else 7) if not (packed and mode == PREFIX)]
    if got not in allowed:
        return f"sparseMode: expected {listing(map(str, allowed))} (inputLayout {_layout(call)}), got {got}"
    samples = len(_lengths(call, 0))
    if got == SHORT_PREFIX and given(call, "attenMaskOptional") and len(call["prefixOptional"] or ()) != samples:
        return (
            f"prefixOptional: expected {samples} numbers (one a sample, sparseMode {got}), got {call['prefixOptional']}"
        )
    return None


def _mask_shape(call: Call) -> str | None:
    mode = call["sparseMode"]
    if not given(call, "attenMaskOptional"):
        return None
    got, heads = call["attenMaskOptional"].shape, call["headNum"]
    expected: list[Shape] = [_COMPRESSED[mode]] if mode in _COMPRESSED else []
    if not expected:
        queries, keys = (_lengths(call, which) for which in (0, 1))
        samples, scores = len(queries), (max(queries, default=0), max(keys, default=0))
        expected = [scores, *((b, n, *scores) for b, n in ((1, 1), (samples, 1), (samples, heads)))]
    if got in expected:
        return None
    return f"attenMaskOptional: expected shape {listing(dict.fromkeys(map(extents, expected)))}, got {extents(got)}"


def _slopes(call: Call) -> str | None:
    name, kind = _names(call).bias, call["pseType"]
    if kind not in (SLOPES, ROOTS) or given(call, name):
        return None
    return f"{name}: expected slopes (pseType {kind}), got none"


def _bias_shape(call: Call) -> str | None:
    name, kind, heads = _names(call).bias, call.arguments.get("pseType", ADD_FIRST), call["headNum"]
    if kind not in range(4):
        return f"pseType: expected 0, 1, 2 or 3, got {kind}"
    inner = kind in (SLOPES, ROOTS)
    if not given(call, name):
        return None
    got, queries, keys = call[name].shape, _lengths(call, 0), _lengths(call, 1)
    samples, rows, columns = len(queries), max(queries, default=0), max(keys, default=0)
    expected: list[Shape] = [(heads,), (samples, heads)]
    if not inner:
        expected = [(b, heads, r, columns) for b, r in ((samples, rows), (samples, 1), (1, rows), (1, 1))]
    if got not in expected:
        return f"{name}: expected shape {listing(dict.fromkeys(map(extents, expected)))}, got {extents(got)}"
    if inner and queries != keys:
        return f"{name}: expected as many keys as queries (pseType {kind}), got {keys} and {queries}"
    return None


def _keep(call: Call) -> str | None:
    if not 0 < call["keepProb"] <= 1:
        return f"keepProb: expected more than 0 and at most 1, got {call['keepProb']}"
    if call["keepProb"] == 1:
        return None
    if not given(call, "dropMaskOptional"):
        return None if "seed" in call.arguments else "dropMaskOptional: expected a mask (keepProb below 1), got none"
    expected, got = -(-_scores_count(call) // 8), call["dropMaskOptional"].size
    return None if got >= expected else f"dropMaskOptional: expected a bit a score, {expected} bytes, got {got}"


def _sink_shape(call: Call) -> str | None:
    name = _names(call).sink
    if not given(call, name) or call[name].shape == (call["headNum"],):
        return None
    return f"{name}: expected shape [{call['headNum']}] (a number a head), got {extents(call[name].shape)}"


def _packed_bias(call: Call) -> str | None:
    name = _names(call).bias
    if _layout(call) != "TND" or not given(call, name) or call.arguments.get("pseType") in (SLOPES, ROOTS):
        return None
    return f"{name}: expected slopes (pseType 2 or 3; others of packed sequences are not supported here), got a tensor"


def _bias_dtype(call: Call) -> str | None:
    name, result = _names(call).bias, call["query"].dtype
    if not given(call, name):
        return None
    expected = D.FLOAT if call.arguments.get("pseType") in (SLOPES, ROOTS) else result
    got = call[name].dtype
    return None if got == expected else f"{name}: expected data type {expected.c_name}, got {got.c_name}"


def _of_same_shape(call: Call, name: str) -> str | None:
    of = {"dpseOut": _BACKWARD.bias, "dsinkOut": _BACKWARD.sink}[name]
    if not (given(call, name) and given(call, of)) or call[name].shape == call[of].shape:
        return None
    return f"expected shape {extents(call[of].shape)} (as {of}), got {extents(call[name].shape)}"


def _gradient_dtype(call: Call, name: str) -> str | None:
    expected, got = D.FLOAT if name == "dsinkOut" else call["query"].dtype, call[name].dtype
    return None if got == expected or not given(call, name) else f"expected {expected.c_name}, got {got.c_name}"


def _absent(call: Call, name: str) -> str | None:
    return "expected none (not supported here), got a tensor" if given(call, name) else None


def _has_ropes(call: Call) -> bool:
    return given(call, _ROPE)


def _unpaired(call: Call) -> str | None:
    ropes = (_ROPE, _names(call).rope)
    if not any(given(call, name) for name in ropes):
        return None
    wanted = (*ropes, *(_ROPE_GRADIENTS if "dy" in call.arguments else ()))
    absent = next((name for name in wanted if not given(call, name)), None)
    return absent and f"{absent}: expected a tensor with rotary parts, got none"


def _bf16(call: Call, name: str) -> str | None:
    got = call[name].dtype
    return None if got == D.BF16 else f"expected data type ACL_BF16 with {_ROPE}, got {got.c_name}"


def _rope_elements(call: Call, name: str) -> str | None:
    got, most = call[name].shape, call["query"].shape[-1]
    if len(got) == 3 and got[-1] <= most and got[-1] % _ROPE_STEP == 0:
        return None
    return f"expected heads of a multiple of {_ROPE_STEP} elements up to {most} (those of query), got {extents(got)}"


def _rope_shape(call: Call, name: str) -> str | None:
    of = "query" if name == _ROPE else _names(call).key
    expected, got = (*call[of].shape[:-1], call[_ROPE].shape[-1]), call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (with {of}), got {extents(got)}"


def _rope_gradient_shape(call: Call, name: str) -> str | None:
    of = (_ROPE, _names(call).rope)[_ROPE_GRADIENTS.index(name)]
    expected, got = call[of].shape, call[name].shape
    return None if got == expected else f"expected shape {extents(expected)} (as {of}), got {extents(got)}"


def _not_beside_ropes(call: Call, name: str) -> str | None:
    return f"expected none with {_ROPE}, got a tensor" if given(call, name) else None


def _mask_beside_ropes(call: Call) -> str | None:
    name = "attenMaskOptional"
    return None if given(call, name) else f"{name}: expected a mask with {_ROPE}, got none"


def _rope_checks(names: _Names, gradients: Collection[str]) -> tuple[Check, ...]:
    """Return the checks of rotary parts, for which the forward functions use a single code."""
    null, ropes = ACLNN_ERR_PARAM_NULLPTR, (_ROPE, names.rope)
    code = ACLNN_ERR_PARAM_INVALID if gradients else null
    return (
        rule(f"all or none: {', '.join((*ropes, *gradients))}", _unpaired, null),
        *restricted(
            "with rotary parts",
            _has_ropes,
            each("of one data type", ("query", *ropes, *gradients), _bf16, code),
            each("elements of a rotary part", ropes, _rope_elements, code),
            value_is(f"another mode with {_ROPE}", lambda got: got != SHORT_PREFIX, "sparseMode", code=code),
            rule("masked: attenMaskOptional", _mask_beside_ropes, null),
            each("none with rotary parts", (names.bias, "dropMaskOptional"), _not_beside_ropes, code),
            value_is(f"1 with {_ROPE}", lambda got: not got < 1, "keepProb", code=code),
            each("shape of a rotary part", ropes, _rope_shape, ACLNN_ERR_INNER_TILING_ERROR),
            *([each("shape of its gradient", tuple(gradients), _rope_gradient_shape)] if gradients else []),
        ),
    )


def _short_query(call: Call, name: str) -> str | None:
    got = call["query"].dtype
    return f"expected none with query of {got.c_name}, got a tensor" if got == D.FLOAT and given(call, name) else None


def _checks(names: _Names, parameters: Sequence[str]) -> tuple[Check, ...]:
    tiling, statistics, dy = ACLNN_ERR_INNER_TILING_ERROR, (names.largest, names.total), ("dy",)[: "dy" in parameters]
    inputs = "query", names.key, "value"
    gradients = names.outputs if dy else ()
    results = (*dy, names.attention)
    sinks = tuple(name for name in (names.sink,) if name in parameters)
    ends = tuple(name for name in (_QUERIES, _KEYS) if name in parameters)
    only_packed = bool(ends) and "seed" not in parameters
    outer = tuple(name for name in ("dpseOut",) if not only_packed)
    further = tuple(name for name in (*outer, "dsinkOut") if name in parameters)
    ropes = tuple(name for name in (_ROPE, names.rope) if name in parameters)
    rope_gradients = tuple(name for name in _ROPE_GRADIENTS if name in parameters and ropes)
    of_short = bool(dy) and "seed" not in parameters
    biased = not only_packed or "pseType" in parameters
    absent = tuple(name for name in _ABSENT if name in parameters)
    slopeless = tiling if dy else ACLNN_ERR_PARAM_INVALID
    checks = (
        *([one_of(parameters[-1], "", _PACKED_DATA)] if parameters[-1] == "softmaxInLayout" else []),
        *elsewhere(CLASS_950, public_format(*inputs, *ropes, *dy, *statistics, names.attention)),
        dtype_in(floating, "query"),
        *(same_dtype(name, "query") for name in (*inputs[1:], *results, *gradients)),
        *([each("data type of a gradient", further, _gradient_dtype)] if further else []),
        rule(f"data type of the bias: {names.bias}", _bias_dtype),
        *([rule(f"slopes: {names.bias}", _slopes, slopeless)] if "pseType" in parameters else []),
        dtype_in({D.BOOL, D.UINT8}, "attenMaskOptional"),
        dtype_in({D.UINT8}, "dropMaskOptional"),
        dtype_in({D.FLOAT}, *statistics, *sinks),
        *(each("of 16 bits only", (name,), _short_query) for name in sinks if of_short),
        value_is("at least 1", lambda got: got > 0, "headNum"),
        rule(f"dimensions of the layout: inputLayout, {', '.join(inputs)}", _dimensions),
        rule(f"heads: headNum, {names.key}, value", _heads),
        *(_rope_checks(names, rope_gradients) if ropes else ()),
        rule(f"as many: {'value' if only_packed else f'{names.key}, value'}", _as_many, tiling),
        fits(
            "shape {} (of the attention)", lambda call, got: (_attention_shape(call), got.shape), *results, code=tiling
        ),
        each("shape of a statistic", statistics, _statistic_shape, tiling),
        *(same_shape(out, name) for out, name in zip(gradients, inputs, strict=False)),
        *([rule(f"ends of sequences: {', '.join(ends)}", _sequences, tiling)] if ends else []),
        rule("known mode: sparseMode, prefixOptional", _known_mode, tiling),
        rule("shape of the mask: attenMaskOptional", _mask_shape, tiling),
        *([each("not computed", absent, _absent, ACLNN_ERR_INNER_NULLPTR)] if absent else []),
        *([rule(f"slopes of packed sequences: {names.bias}", _packed_bias, ACLNN_ERR_INNER_NULLPTR)] if ends else []),
        *([rule(f"shape of the bias: {names.bias}", _bias_shape, tiling)] if biased else []),
        rule("dropout: keepProb, dropMaskOptional", _keep, tiling),
        *(rule(f"a number a head: {name}", _sink_shape, tiling) for name in sinks),
        *([each("shape of a gradient", further, _of_same_shape, tiling)] if further else []),
    )
    needed = present(*inputs, *dy, "inputLayout", *statistics, names.attention, *gradients)
    return (needed, *unless_empty(names.outputs, *checks, which="every output", among=all))


def _tensor(name: str, meaning: str, optional: bool = False, kind: Kind = Kind.INPUT) -> Parameter:
    return Parameter(name, name, kind, meaning, optional=optional, c_type="const aclTensor *")


def _array(name: str, meaning: str) -> Parameter:
    return Parameter(name, name, Kind.INT_ARRAY, meaning, optional=True)


_PACKED, _STARTS, _SINK, _ROPES, _ALL_IN_ONE = "packed", "starts", "sink", "ropes", "all in one"
_TEXT, _TEXT_LAST = "layout", "layout behind the outputs"
"""Features of a variant: packed sequences, start indices with pseType, a sink, rotary parts, all parameters, layout of
the statistics."""


def _text(name: str) -> Parameter:
    return Parameter(
        name, name, Kind.STRING, '"same_as_input": statistics of packed sequences have the input layout', optional=True
    )


def _attributes(has: Collection[str], layout: str) -> tuple[Parameter, ...]:
    """Return the parameters between a function's optional inputs and its outputs."""
    everything = _ALL_IN_ONE in has
    ends = (_array(_QUERIES, "the ends of the query sequences"), _array(_KEYS, "the ends of the key sequences"))
    starts = (
        _array("qStartIdxOptional", "the index of the first query in the whole sequence"),
        _array("kvStartIdxOptional", "the index of the first key"),
    )
    bias_type = attribute(
        "pseType",
        Kind.INT64,
        "0: bias after scaling, 1: before, 2: slopes of ALiBi distances, 3: of their square roots",
    )
    seeds = (
        attribute("seed", Kind.INT64, "the seed of a dropout without a mask"),
        attribute("offset", Kind.INT64, "the offset of the random stream"),
    )
    out_dtype = attribute("outDtype", Kind.INT64, "ignored")
    text, forward = _text(layout), layout == "softmaxOutLayout"
    return (
        _array("prefixOptional", "the number of prefix columns that are never masked, per sample (sparseMode 6)"),
        *(ends if everything or _PACKED in has else ()),
        *(starts if everything or _STARTS in has else ()),
        attribute("scaleValue", Kind.DOUBLE, "the scale factor of the scores"),
        attribute("keepProb", Kind.DOUBLE, "the probability of keeping an attention weight"),
        attribute("preTokens", Kind.INT64, "the number of keys before a query that it attends to"),
        attribute("nextTokens", Kind.INT64, "the number of keys after a query that it attends to"),
        attribute("headNum", Kind.INT64, "the number of query heads"),
        attribute("inputLayout", Kind.STRING, f"the dimensions: {listing(LAYOUTS)}"),
        *((text,) if everything and not forward else ()),
        attribute("innerPrecise", Kind.INT64, "ignored"),
        attribute("sparseMode", Kind.INT64, "the mask mode, 0 to 8"),
        *((out_dtype,) if everything and forward else ()),
        *((bias_type,) if everything or _STARTS in has else ()),
        *((text,) if (everything and forward) or _TEXT in has else ()),
        *(seeds if everything else ()),
        *((out_dtype,) if everything and not forward else ()),
    )


_MASKS = (
    _tensor("dropMaskOptional", "the dropout mask, one bit per score, 1 to keep: UINT8", True),
    _tensor("paddingMaskOptional", "ignored", True),
    _tensor("attenMaskOptional", "the attention mask, nonzero to mask a score: BOOL or UINT8", True),
)


def _nulls(names: Sequence[str]) -> tuple[Parameter, ...]:
    return tuple(_tensor(name, "must be null", True) for name in names)


def _sink(name: str) -> Parameter:
    return _tensor(name, "an extra score per head in the softmax, without a value", True)


def _ropes(has: Collection[str], names: _Names) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    of = {_ROPE: "q", names.rope: "k"}
    query, key = (_tensor(name, f"the rotary part of {beside} in each head: BF16", True) for name, beside in of.items())
    return ((query,), (key,)) if _ROPES in has else ((), ())


def _score(name: str, has: Collection[str]) -> Operator:
    everything = _ALL_IN_ONE in has
    query_rope, key_rope = _ropes(has, _FORWARD)
    parameters = (
        _tensor("query", "q"),
        *query_rope,
        _tensor("key", "k"),
        *key_rope,
        _tensor("value", "v"),
        _tensor("realShiftOptional", "the bias", True),
        *_MASKS,
        *(_nulls(_ABSENT[:5]) if everything else ()),
        *((_sink("sinkOptional"),) if everything or _SINK in has else ()),
        *_attributes(has, "softmaxOutLayout"),
        _tensor("softmaxMaxOut", "the maximum score of each query, repeated eight times: FLOAT", kind=Kind.OUTPUT),
        _tensor("softmaxSumOut", "the sum of e^(score - maximum), repeated eight times: FLOAT", kind=Kind.OUTPUT),
        _tensor("softmaxOutOut", "not written", True, Kind.OUTPUT),
        _tensor("attentionOutOut", "the attention", kind=Kind.OUTPUT),
    )
    return _operator(name, "Attention.", _FORWARD, parameters, _forward_work, everything)


def _gradient(name: str, has: Collection[str]) -> Operator:
    everything = _ALL_IN_ONE in has
    meaning = "the gradient with respect to the rotary part" if _ROPES in has else "not written"
    ropes = tuple((_tensor(name, meaning, True, Kind.OUTPUT),) for name in _ROPE_GRADIENTS)
    query_rope, key_rope = _ropes(has, _BACKWARD)
    dq_rope, dk_rope = ropes if _ROPES in has else ((), ())
    parameters = (
        _tensor("query", "q"),
        *query_rope,
        _tensor("keyIn", "k"),
        *key_rope,
        _tensor("value", "v"),
        _tensor("dy", "the gradient with respect to the attention"),
        _tensor("pseShiftOptional", "the bias", True),
        *_MASKS,
        _tensor("softmaxMaxOptional", "the maximum score of each query, repeated eight times: FLOAT"),
        _tensor("softmaxSumOptional", "the sum of e^(score - maximum), repeated eight times: FLOAT"),
        _tensor("softmaxInOptional", "ignored", True),
        _tensor("attentionInOptional", "the attention"),
        *((_sink("sinkInOptional"),) if everything or _SINK in has else ()),
        *(_nulls(_ABSENT) if everything else ()),
        *_attributes(has, "softmaxInLayout"),
        _tensor("dqOut", "the gradient with respect to query", kind=Kind.OUTPUT),
        *dq_rope,
        _tensor("dkOut", "the gradient with respect to key", kind=Kind.OUTPUT),
        *dk_rope,
        _tensor("dvOut", "the gradient with respect to value", kind=Kind.OUTPUT),
        *((each for rope in ropes for each in rope) if everything else ()),
        _tensor("dpseOut", "the gradient with respect to the bias, unless that contains slopes", True, Kind.OUTPUT),
        *(
            (_tensor("dsinkOut", "the gradient with respect to the sink", True, Kind.OUTPUT),)
            if everything or _SINK in has
            else ()
        ),
        *((_text("softmaxInLayout"),) if _TEXT_LAST in has else ()),
    )
    return _operator(
        name, "Gradients of scaled dot-product attention.", _BACKWARD, parameters, _backward_work, everything
    )


def _operator(
    name: str,
    summary: str,
    names: _Names,
    parameters: tuple[Parameter, ...],
    work: Callable[[Call], Library | None],
    everything: bool,
) -> Operator:
    formula = "softmax(scaleValue * query @ key.T + bias, masked) @ value"
    return Operator(
        name=name,
        summary=summary,
        formula=f"attentionOut = {formula}" if names is _FORWARD else f"gradients of {formula}",
        parameters=parameters,
        support=support(FLOATING, CLASS_950 if everything else MODERN),
        checks=_checks(names, [parameter.name for parameter in parameters]),
        work=work,
        in_header_of="flash_attention_score" if names is _FORWARD else "flash_attention_score_grad",
    )


OPERATORS = (
    _score("flash_attention_score", ()),
    _score("flash_attention_score_v2", (_STARTS,)),
    _score("flash_attention_score_v3", (_STARTS, _SINK)),
    _score("flash_attention_score_v4", (_ALL_IN_ONE,)),
    _score("flash_attention_var_len_score", (_PACKED,)),
    _score("flash_attention_var_len_score_v2", (_PACKED, _STARTS)),
    _score("flash_attention_var_len_score_v3", (_PACKED, _STARTS, _ROPES)),
    _score("flash_attention_var_len_score_v4", (_PACKED, _TEXT)),
    _score("flash_attention_var_len_score_v5", (_PACKED, _STARTS, _ROPES, _SINK, _TEXT)),
    _gradient("flash_attention_score_grad", ()),
    _gradient("flash_attention_score_grad_v2", (_STARTS,)),
    _gradient("flash_attention_score_grad_v3", (_STARTS, _SINK)),
    _gradient("flash_attention_score_grad_v4", (_ALL_IN_ONE,)),
    _gradient("flash_attention_unpadding_score_grad", (_PACKED,)),
    _gradient("flash_attention_unpadding_score_grad_v2", (_PACKED, _STARTS)),
    _gradient("flash_attention_unpadding_score_grad_v3", (_PACKED, _STARTS, _ROPES)),
    _gradient("flash_attention_unpadding_score_grad_v4", (_PACKED, _TEXT_LAST)),
    _gradient("flash_attention_unpadding_score_grad_v5", (_PACKED, _STARTS, _ROPES, _SINK, _TEXT)),
)
