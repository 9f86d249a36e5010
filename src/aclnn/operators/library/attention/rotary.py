"""Pairs of elements turned by angles: aclnnRotaryPositionEmbedding, its gradient, aclnnApplyRotaryPosEmb …"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    broadcast_shape,
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    floating,
    generated,
    listing,
    not_empty,
    null,
    on,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS, CLASS_950, Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR
from aclnn.operators.library.common import MODERN, attribute, expect_within, optional_in, support, tensor_in, tensor_out

_HALVES, _NEIGHBOURS, _QUARTERS, _NEIGHBOURS_TO_HALVES = range(4)
"""Values of mode: which elements form a pair, and where the pair's results go."""
_FEW = 1000
"""Exclusive bound of samples and heads before the 950 products."""
_SUMMED = 1024
"""Maximum of samples times heads for gradients of cos and sin before the 950 products."""
_LAYOUTS = {1: "BSND", 2: "SBND", 3: "BNSD", 4: "TND"}
_APPLIED_MODES = {"half": _HALVES, "interleave": _NEIGHBOURS, "quarter": _QUARTERS}
_APPLIED = ("queryRef", "keyRef", "cos", "sin")
_MOST_APPLIED = 1024
_BUFFER = (192 << 10, 256 << 10)
"""Bytes of a vector core's buffer on the A2 class and on Atlas inference."""


def _first(call: Call) -> str:
    return "dy" if "dy" in call.arguments else "x"


def _pairs(x: Any, mode: int) -> tuple[Any, Any]:
    """Return a view of the pairs' first elements and a view of their second elements."""
    size = x.shape[-1]
    inner = {_HALVES: size // 2, _QUARTERS: size // 4}.get(mode, 1)
    pairs = x.reshape(*x.shape[:-1], size // 2 // inner, 2, inner)
    first, second = pairs[..., 0, :], pairs[..., 1, :]
    return (first.swapaxes(-1, -2), second.swapaxes(-1, -2)) if mode == _NEIGHBOURS_TO_HALVES else (first, second)


def _turned(mode: int) -> int:
    """Return the mode by which cos, sin and the results are paired."""
    return _HALVES if mode == _NEIGHBOURS_TO_HALVES else mode


def _wide(*arrays: Any) -> list[Any]:
    return [np.asarray(array, np.float64) for array in arrays]


def _joined(first: Any, second: Any, shape: tuple[int, ...], mode: int) -> Any:
    """Return an array of pairs with these first and second elements."""
    result = np.empty(shape)
    for place, values in zip(_pairs(result, mode), (first, second), strict=True):
        place[...] = values
    return result


def _turn(mode: int, x: Any, cos: Any, sin: Any) -> Any:
    to = _turned(mode)
    (x1, x2), (c1, c2), (s1, s2) = _pairs(x, mode), _pairs(cos, to), _pairs(sin, to)
    return _joined(x1 * c1 - x2 * s1, x2 * c2 + x1 * s2, x.shape, to)


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    mode, inputs = call["mode"], ("x", "cos", "sin")
    if call.arguments.get("rotate") is None:
        return Library(lambda *arrays: _turn(mode, *_wide(*arrays)), inputs, ("out",))

    def turn_by_matrix(*arrays: Any) -> Any:
        x, cos, sin, rotate = _wide(*arrays)
        return x * cos + x @ rotate * sin

    return Library(turn_by_matrix, (*inputs, "rotate"), ("out",))


def _apply_work(call: Call) -> Library:
    mode = _APPLIED_MODES[_applied_mode(call)]

    def turn_both(*arrays: Any) -> tuple[Any, Any]:
        query, key, cos, sin = _wide(*arrays)
        return _turn(mode, query, cos, sin), _turn(mode, key, cos, sin)

    return Library(turn_both, _APPLIED, _APPLIED[:2])


def _gradient_work(call: Call) -> Library | None:
    if call["dxOut"].size == 0:
        return None
    mode, shape, small = call["mode"], call["dxOut"].shape, call["cos"].shape
    to, tensors = _turned(mode), ("dy", "cos", "sin")
    aligned = (1,) * (len(shape) - len(small)) + small
    shared = tuple(dim for dim, extent in enumerate(aligned) if extent == 1)

    def total(first: Any, second: Any) -> Any:
        return _joined(first, second, shape, to).sum(shared, keepdims=True).reshape(small)

    def turn_back(*arrays: Any) -> Any:
        dy, cos, sin, *x = _wide(*arrays)
        (dy1, dy2), (c1, c2), (s1, s2) = (_pairs(each, to) for each in (dy, cos, sin))
        dx = _joined(c1 * dy1 + s2 * dy2, c2 * dy2 - s1 * dy1, shape, mode)
        if not x:
            return dx
        x1, x2 = _pairs(x[0], mode)
        return dx, total(dy1 * x1, dy2 * x2), total(-dy1 * x2, dy2 * x1)

    if call["xOptional"] is None:
        return Library(turn_back, tensors, ("dxOut",))
    return Library(turn_back, (*tensors, "xOptional"), ("dxOut", "dcosOut", "dsinOut"))


def _modes(call: Call) -> tuple[int, ...]:
    if call.product in CLASS_950:
        return _HALVES, _NEIGHBOURS, _QUARTERS, _NEIGHBOURS_TO_HALVES
    return (_HALVES,) if call.product is Product.ATLAS_INFERENCE else (_HALVES, _NEIGHBOURS)


def _known_mode(call: Call) -> str | None:
    modes, got = _modes(call), call["mode"]
    return None if got in modes else f"mode: expected {listing(map(str, modes))} on {call.product.title}, got {got}"


def _elements(call: Call) -> str | None:
    name = _first(call)
    got, step = call[name].shape[-1], 4 if call["mode"] == _QUARTERS else 2
    most = 1024 if call.product in CLASS_950 else 894
    if call.product is Product.ATLAS_INFERENCE:
        step, most = 32, 128
    if got % step == 0 and got <= most:
        return None
    return f"{name}: expected a multiple of {step} up to {most} in the last dimension, got {got}"


def _broadcasts(call: Call) -> str | None:
    name = _first(call)
    expected, got = call[name].shape, call["cos"].shape
    if got[-1] == expected[-1] and broadcast_shape(expected, got) == expected:
        return None
    return f"cos: expected a shape that broadcasts to {extents(expected)} (that of {name}), got {extents(got)}"


def _lies_in(call: Call, layout: str) -> bool:
    """Tell whether cos is broadcast along dimensions that may be missing in this layout, within the size limits."""
    shape, got, mode = call[_first(call)].shape, call["cos"].shape, call["mode"]
    sizes = dict(zip(layout, shape, strict=True))
    samples, heads = sizes.get("B", 1), sizes["N"]
    if samples * heads >= _FEW if mode == _NEIGHBOURS else max(samples, heads) >= _FEW:
        return False
    gradients = call.arguments.get("xOptional") is not None
    if gradients and mode == _HALVES and samples * heads > _SUMMED:
        return False
    kept = ("TD", "SD") if mode == _NEIGHBOURS else ("TD", "TND", "SD", "BSD", "BSND")
    return any(
        got == tuple(extent if dim in dims else 1 for dim, extent in sizes.items())
        for dims in kept
        if ("T" in dims) == ("T" in layout)
    )


def _arranged(call: Call) -> str | None:
    name = _first(call)
    shape, got = call[name].shape, call["cos"].shape
    layouts = ("TND",) if len(shape) == 3 else ("BNSD", "BSND", "SBND")
    if len(got) == len(shape) and any(_lies_in(call, layout) for layout in layouts):
        return None
    return (
        f"cos: expected extents of {name} in S or T and D, else those or 1, for fewer than {_FEW} samples and heads "
        f"({listing(layouts)}, mode {call['mode']}), got {extents(got)} and {extents(shape)}"
    )


def _has_x(call: Call) -> bool:
    return call["xOptional"] is not None


def _checks(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> tuple[Check, ...]:
    first, (out, *gradients) = inputs[0], outputs
    required = (*(name for name in inputs if name != "xOptional"), *outputs)
    tensors = (*inputs, *outputs)
    given = ("xOptional",) if "xOptional" in inputs else ()
    return (
        present(*required),
        public_format(*tensors),
        dtype_in(floating, first),
        *(same_dtype(name, first) for name in tensors[1:]),
        *with_code(
            ACLNN_ERR_INNER_TILING_ERROR,
            rule("known mode: mode", _known_mode),
            dims_between(3, 4, first, "cos"),
            same_shape("sin", "cos"),
            *(same_shape(name, first) for name in (*given, out)),
            *restricted("with xOptional", _has_x, *(same_shape(name, "cos") for name in gradients)),
            rule(f"whole pairs: {first}", _elements),
            *on(CLASS_950, rule("broadcasts: cos", _broadcasts)),
            *elsewhere(CLASS_950, rule("arrangement: cos", _arranged)),
        ),
    )


def _square(call: Call) -> tuple[int, int]:
    size = call["x"].shape[-1]
    return size, size


def _applied_mode(call: Call) -> str:
    return str(call.arguments.get("rotaryMode", "half"))


def _layout(call: Call) -> str:
    return _LAYOUTS[call["layout"]]


def _known_layout(call: Call) -> str | None:
    # The kernel before 950 takes two of the four.
    known, got = tuple(_LAYOUTS) if call.product in CLASS_950 else (1, 4), call["layout"]
    return None if got in known else f"layout: expected {listing(map(str, known))} on {call.product.title}, got {got}"


def _known_applied_mode(call: Call) -> str | None:
    known, got = tuple(_APPLIED_MODES) if call.product in CLASS_950 else ("half",), call["rotaryMode"]
    if got in known:
        return None
    return f"rotaryMode: expected {listing(map(repr, known))} on {call.product.title}, got {got!r}"


def _ranks(call: Call, name: str) -> str | None:
    layout, got = _layout(call), call[name].shape
    return None if len(got) == len(layout) else f"expected {len(layout)} dimensions ({layout}), got {extents(got)}"


def _elements_of_both(call: Call, name: str) -> str | None:
    got, step = call[name].shape[-1], 4 if _applied_mode(call) == "quarter" else 2
    if call.product not in CLASS_950:
        return None if got in (64, 128) else f"expected 64 or 128 in the last dimension, got {got}"
    if got % step == 0 and got <= _MOST_APPLIED:
        return None
    return f"expected a multiple of {step} up to {_MOST_APPLIED} in the last dimension, got {got}"


def _key_shape(call: Call) -> tuple[int, ...]:
    at, shape = _layout(call).index("N"), call["queryRef"].shape
    return (*shape[:at], call["keyRef"].shape[at], *shape[at + 1 :])


def _angles_shape(call: Call) -> tuple[int, ...]:
    """Return the expected shape of cos: one head, on 950 products possibly one sample."""
    layout, got = _layout(call), call["cos"].shape
    shared = call.product in CLASS_950 and "B" in layout and got[layout.index("B")] == 1
    ones = "BN" if shared else "N"
    return tuple(1 if dim in ones else n for dim, n in zip(layout, call["queryRef"].shape, strict=True))


def _heads_fit(call: Call) -> str | None:
    layout, query = _layout(call), call["queryRef"]
    heads = sum(call[name].shape[layout.index("N")] for name in _APPLIED[:2])
    size, wide = query.shape[-1], 4 if query.dtype == D.BF16 else query.dtype.itemsize
    room = _BUFFER[call.product is Product.ATLAS_INFERENCE]
    got = size * (5 * heads * wide + 4 * query.dtype.itemsize + (8 if query.dtype == D.BF16 else 0))
    return None if got <= room else f"queryRef: expected heads of both that take at most {room} bytes, got {got}"


def _apply(name: str, summary: str, *mode: Parameter) -> Operator:
    return Operator(
        name=name,
        summary=summary,
        formula="queryRef = queryRef * cos + rotated(queryRef) * sin; the same for keyRef",
        parameters=(
            tensor_out("queryRef", "the queries, rotated in place"),
            tensor_out("keyRef", "the keys, rotated in place"),
            *(_COS, _SIN),
            attribute("layout", Kind.INT64, "the layout: 1 BSND, 2 SBND, 3 BNSD, 4 TND"),
            *mode,
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN | {Product.ATLAS_INFERENCE}),
        checks=(
            present(*_APPLIED),
            public_format(*_APPLIED),
            dtype_in(floating, "queryRef"),
            *(same_dtype(name, "queryRef") for name in _APPLIED[1:]),
            rule("known layout: layout", _known_layout),
            *(rule("known mode: rotaryMode", _known_applied_mode) for _ in mode),
            each("dimensions of the layout", _APPLIED, _ranks),
            not_empty(*_APPLIED),
            each("whole pairs", ("queryRef",), _elements_of_both),
            shape_is("that of queryRef but for its heads", _key_shape, "keyRef"),
            shape_is("that of queryRef with one head", _angles_shape, "cos"),
            same_shape("sin", "cos"),
            *elsewhere(CLASS_950, rule("heads fit: queryRef", _heads_fit)),
        ),
        work=_apply_work,
    )


_MODE = attribute(
    "mode", Kind.INT64, "the pairs: 0 halves, 1 interleaved, 2 quarters, 3 interleaved with the results in halves"
)
_COS, _SIN = tensor_in("cos", "the cosines of the angles"), tensor_in("sin", "the sines of the angles")

_COLUMNS = 64
"""Columns of a head that ``aclnnInterleaveRope`` rotates."""
_SECTIONS = ((16, 24, 24), (24, 20, 20), (8, 12, 12), (16, 16, 16, 16))
"""Supported splits of the angles among rows of positions; Ascend 950 has the first two."""
_HEAD_BYTES = 64
"""Byte alignment of a head and of its rotated elements when angles come from a table."""


def _beside_heads(call: Call, name: str) -> str | None:
    (samples, _, tokens, columns), got = call["x"].shape, call[name].shape
    shared = (1, samples) if call.product in CLASS_950 else (samples,)
    if got[0] in shared and got[1] == 1 and got[2] in (1, tokens) and got[3] == columns:
        return None
    of = " or ".join(map(str, shared))
    return f"expected shape [{of}, 1, {tokens} or 1, {columns}], got {extents(got)}"


def _interleave_work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    return Library(lambda *arrays: _turn(_NEIGHBOURS_TO_HALVES, *_wide(*arrays)), ("x", "cos", "sin"), ("out",))


def _parts_of_angles(call: Call) -> tuple[int, ...]:
    """Return the number of angles that each row of positions selects; empty for a single row."""
    section = tuple(call["mropeSection"] or ())
    return section if section and section[0] > 0 else ()


def _positions(call: Call) -> str | None:
    parts, got, rows = _parts_of_angles(call), call["positions"].shape, call["queryIn"].shape[0]
    expected = (len(parts), rows) if parts else (rows,)
    return None if got == expected else f"positions: expected shape {extents(expected)}, got {extents(got)}"


def _sections(call: Call) -> str | None:
    given, parts, angles = call["mropeSection"], _parts_of_angles(call), call["cosSinCache"].shape[1] / 2
    if given is not None and (len(given) not in (3, 4) or min(given) < 0):
        return f"mropeSection: expected 3 or 4 numbers of 0 or more, got {extents(given)}"
    if not parts:
        return None
    known = _SECTIONS[:2] if call.product in CLASS_950 else _SECTIONS
    if parts in known and sum(parts) == angles:
        return None
    listed = listing(map(extents, known))
    return f"mropeSection: expected {listed} on {call.product.title}, {angles:g} in all, got {extents(parts)}"


def _head(call: Call) -> str | None:
    size, turned, unit = call["headSize"], call["cosSinCache"].shape[1], _HEAD_BYTES // call["queryIn"].dtype.itemsize
    if size % unit == 0 and turned % unit == 0 and turned <= size:
        return None
    return f"headSize: expected multiples of {unit}, {turned} (the columns of cosSinCache) or more, got {size}"


def _whole_heads(call: Call, name: str) -> str | None:
    size, got = call["headSize"], call[name].shape[1]
    return None if size > 0 and got % size == 0 else f"expected a multiple of {size} columns (headSize), got {got}"


def _cache_work(call: Call) -> Library:
    mode, size, parts = _HALVES if call["isNeoxStyle"] else _NEIGHBOURS, call["headSize"], _parts_of_angles(call)

    deciding = _deciding_rows(parts, alternating=call.arguments.get("cacheMode") == 1) if parts else ()

    def look_up(positions: Any, cache: Any) -> list[Any]:
        """Return each token's cosines and sines, repeated for both elements of a pair as the mode places them."""
        expect_within("positions", positions, 0, len(cache) - 1)
        rows = cache[positions].astype(np.float64)
        found = []
        for numbers in np.split(rows, 2, axis=-1):
            if parts:
                numbers = numbers[deciding, :, np.arange(numbers.shape[-1])].T
            found.append(_joined(*_same_pairs(numbers, mode), mode)[:, None])
        return found

    def turn(positions: Any, cache: Any, *tensors: Any) -> tuple[Any, ...]:
        cos, sin = look_up(positions, cache)
        turned, results = cos.shape[-1], []
        for given in tensors:
            heads = given.reshape(len(given), -1, size).astype(np.float64)
            heads[..., :turned] = _turn(mode, heads[..., :turned], cos, sin)
            results.append(heads.reshape(given.shape))
        return tuple(results)

    return Library(turn, ("positions", "cosSinCache", "queryIn", "keyIn"), ("queryOut", "keyOut"))


def _deciding_rows(parts: Sequence[int], alternating: bool) -> Any:
    """Return the row of positions that selects each angle: contiguous sections, or rows alternating up to a limit."""
    rows = np.repeat(np.arange(len(parts)), parts)
    if alternating:
        rows[:] = 0
        for row in (1, 2):
            rows[row : 3 * parts[1] : 3] = row
    return rows


def _same_pairs(numbers: Any, mode: int) -> tuple[Any, Any, tuple[int, int]]:
    """Return views of the angles for both elements of a pair, and the shape of the joined pairs."""
    rows, angles = numbers.shape
    pairs = numbers[:, None] if mode == _HALVES else numbers[..., None]
    return pairs, pairs, (rows, 2 * angles)


OPERATORS = (
    Operator(
        name="rotary_position_embedding",
        summary="Rotary position embedding.",
        formula="out = x * cos + rotated(x) * sin",
        parameters=(tensor_in("x", "the queries or keys"), _COS, _SIN, _MODE, tensor_out()),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN | {Product.ATLAS_INFERENCE}),
        checks=_checks(("x", "cos", "sin"), ("out",)),
        work=_work,
    ),
    Operator(
        name="rotary_position_embedding_v2",
        summary="Rotary position embedding, optionally with a rotation matrix.",
        formula="out = x * cos + rotated(x) * sin, or x * cos + (x @ rotate) * sin",
        parameters=(
            *(tensor_in("x", "the queries or keys"), _COS, _SIN, _MODE),
            optional_in("rotate", "the square rotation matrix, on Atlas A2 and A3; null: rotate pairs by mode"),
            tensor_out(),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN),
        checks=(
            *elsewhere(A2_CLASS, null("rotate")),
            *_checks(("x", "cos", "sin"), ("out",)),
            same_dtype("rotate", "x"),
            *with_code(ACLNN_ERR_INNER_TILING_ERROR, shape_is("a square of columns", _square, "rotate")),
        ),
        work=_work,
    ),
    Operator(
        name="rotary_position_embedding_grad",
        summary="Gradients of rotary position embeddings.",
        formula="dx = dy * cos - rotated(dy * sin); dcos = sum(dy * x); dsin = sum(dy * rotated(x))",
        parameters=(
            *(tensor_in("dy", "the gradient with respect to the result"), _COS, _SIN),
            Parameter(
                "xOptional", "xOptional", Kind.INPUT, "the forward input; null: no gradients of cos and sin", True
            ),
            *(_MODE, tensor_out("dxOut", "the gradient with respect to x", const=True)),
            *(tensor_out(f"d{of}Out", f"the gradient with respect to {of}", const=True) for of in ("cos", "sin")),
        ),
        support=support((D.FLOAT, D.FLOAT16, D.BF16), MODERN),
        checks=_checks(("dy", "cos", "sin", "xOptional"), ("dxOut", "dcosOut", "dsinOut")),
        work=_gradient_work,
    ),
    _apply("apply_rotary_pos_emb", "Rotary position embedding of queries and keys with pairs in halves, in place."),
    _apply(
        "apply_rotary_pos_emb_v2",
        "Rotary position embedding of queries and keys, in place.",
        attribute("rotaryMode", Kind.STRING, 'pairs: "half", "interleave" (neighbours) or "quarter"'),
    ),
    Operator(
        name="interleave_rope",
        summary="Rotary position embedding of interleaved pairs, with the results in halves.",
        formula="out = z * cos + rotate_half(z) * sin, z = the even elements of x, then the odd ones",
        parameters=(
            tensor_in("x", "(B, N, S, 64)"),
            tensor_in("cos", "the cosines, (B, 1, S or 1, 64)"),
            tensor_in("sin", "the sines"),
            tensor_out("out", "the result"),
        ),
        support={**support((D.FLOAT16, D.BF16), A2_CLASS), **support(FLOATING, CLASS_950)},
        checks=generated(
            ("x", "cos", "sin"),
            ("out",),
            lambda product: [(d,) * 4 for d in (FLOATING if product in CLASS_950 else (D.FLOAT16, D.BF16))],
            dims_between(4, 4, "x", "cos"),
            value_is(f"{_COLUMNS} columns", lambda got: got == _COLUMNS, "x", of=lambda got: got.shape[-1]),
            each("with x", ("cos",), _beside_heads),
            same_shape("sin", "cos"),
            same_shape("out", "x"),
        ),
        work=_interleave_work,
    ),
    Operator(
        name="rope_with_sin_cos_cache",
        summary="Rotary position embedding of the first elements of heads, with angles looked up by position.",
        formula="queryOut = query * cos + rotate(query) * sin, cos and sin: the halves of cosSinCache[positions]",
        parameters=(
            tensor_in("positions", "the position of each token; one row per section with mropeSection; INT64"),
            tensor_in("queryIn", "(tokens, heads * headSize)"),
            tensor_in("keyIn", "(tokens, heads * headSize)"),
            tensor_in("cosSinCache", "the table of cosines and sines (positions, rotated elements of a head)"),
            Parameter(
                "mropeSection",
                "mrope_section",
                Kind.INT_ARRAY,
                "the number of angles per row of positions; null or beginning with 0: one row",
                optional=True,
            ),
            attribute("headSize", Kind.INT64, "the number of elements of a head"),
            attribute("isNeoxStyle", Kind.BOOL, "whether pairs are halves (NeoX style) instead of interleaved"),
            tensor_out("queryOut", "the rotated queryIn"),
            tensor_out("keyOut", "the rotated keyIn"),
        ),
        support=support(FLOATING, MODERN),
        checks=(
            dtype_in((D.INT64,), "positions"),
            dtype_in(floating, "queryIn"),
            *(same_dtype(name, "queryIn") for name in ("keyIn", "cosSinCache", "queryOut", "keyOut")),
            dims_between(2, 2, "queryIn", "keyIn", "cosSinCache"),
            not_empty("queryIn", "keyIn", "cosSinCache", "positions"),
            shape_is("a row for each token", lambda call: (call["queryIn"].shape[0], call["keyIn"].shape[1]), "keyIn"),
            same_shape("queryOut", "queryIn"),
            same_shape("keyOut", "keyIn"),
            rule("of all angles: mropeSection", _sections),
            rule("turned elements of a head: headSize", _head),
            each("whole heads", ("queryIn", "keyIn"), _whole_heads),
            rule("of each token: positions", _positions),
        ),
        work=_cache_work,
    ),
)
