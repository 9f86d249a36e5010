"""Attention, softmax(q·kᵀ)·v, and its gradients, by blocks of scores.

Scores have the type of the queries, float32 for 16 bits. They are computed some rows at a time, and never kept: the
gradients compute them again from the largest score and the sum of each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Shape = tuple[int, ...]

LAYOUTS = {"BSH": "BSND", "SBH": "SBND", "BNSD": "BNSD", "BSND": "BSND", "TND": "TND"}
"""Layouts, and the dimensions after H is split into heads (N) and elements (D)."""
REPEATS = 8
"""Copies of each row's number in a tensor of statistics."""
_BLOCK = 1 << 19
"""Maximum number of scores computed at a time; a block has at least one row."""
ALL, GIVEN, LEFT, RIGHT, BAND, PREFIX, SHORT_PREFIX, LAST_BAND, FIRST_BAND = range(9)
"""Values of sparseMode: which scores are masked."""
ADD_FIRST, SLOPES, ROOTS = 1, 2, 3
"""Values of pseType, with 0: bias added before scaling; ALiBi bias of distances, or of their square roots."""


class Form(NamedTuple):
    """The attributes of a call."""

    layout: str
    heads: int
    kv_heads: int
    ends: tuple[tuple[int, ...], tuple[int, ...]]
    """Ends of the packed sequences, of queries and of keys."""
    scale: float
    keep: float
    before: int
    after: int
    mode: int
    bias_type: int
    starts: int
    """Distance of the first key ahead of the first query."""
    prefix: tuple[int, ...]
    transposed: bool
    """True if statistics of packed sequences lie head by head, regardless of their shape."""


def _ends(form: Form, which: int) -> list[slice]:
    """Return the extents of packed sequences of queries (``which`` 0) or keys (1); trailing ends of 0 are padding."""
    return [slice(begin, max(begin, end)) for begin, end in pairwise((0, *form.ends[which]))]


def _groups(form: Form, query: Any, key: Any) -> list[slice]:
    """Divide the samples into groups that are computed together."""
    if form.layout == "TND":
        return [slice(at, at + 1) for at in range(len(form.ends[0]))]
    samples, sequence = (LAYOUTS[form.layout].index(dim) for dim in "BS")
    step = max(1, _BLOCK // max(1, form.heads * query.shape[sequence] * key.shape[sequence]))
    samples = query.shape[samples]
    return [slice(at, min(at + step, samples)) for at in range(0, samples, step)]


def _split(form: Form, x: Any, heads: int, which: int, groups: Sequence[slice]) -> list[Any]:
    """Return views (samples, heads, sequence, elements) of the groups of a tensor of queries, 0, or of keys, 1."""
    if form.layout == "TND":
        return [x[own].swapaxes(0, 1)[None] for own in _ends(form, which)]
    if x.ndim == 3:
        x = x.reshape(*x.shape[:2], heads, x.shape[2] // max(1, heads))
    x = x.transpose([LAYOUTS[form.layout].index(dim) for dim in "BNSD"])
    return [x[group] for group in groups]


def _statistics(form: Form, x: Any, groups: Sequence[slice]) -> list[Any]:
    """Return views (samples, heads, sequence, 1) of the groups of a statistic."""
    if form.layout != "TND":
        return [x[group, ..., :1] for group in groups]
    rows = x.reshape(form.heads, -1, REPEATS) if form.transposed else x.reshape(-1, form.heads, REPEATS).swapaxes(0, 1)
    return [rows[None, :, own, :1] for own in _ends(form, 0)]


def _joined(x: Any, heads: int) -> Any:
    """Stack the rows of query heads that share a head of keys."""
    return x.reshape(len(x), heads, x.shape[1] // heads * x.shape[2], x.shape[-1])


def _product(x: Any, y: Any) -> Any:
    """Multiply matrices head by head; a head of ``y`` may be shared by several consecutive heads of ``x``."""
    return (_joined(x, y.shape[1]) @ y).reshape(*x.shape[:3], y.shape[-1])


def _mode(form: Form, group: slice) -> int:
    """Return the mode of a group; for cut packed sequences, the first or the last one has a band."""
    if form.mode not in (LAST_BAND, FIRST_BAND):
        return form.mode
    full = [at for at, own in enumerate(_ends(form, 0)) if own.stop > own.start]
    if group.start == full[-1 if form.mode == LAST_BAND else 0]:
        return BAND
    return RIGHT if form.mode == LAST_BAND else LEFT


def _of_group(x: Any, group: slice) -> Any:
    """Return a group's samples of a tensor whose first dimension counts samples or is broadcast."""
    return x if len(x) == 1 else x[group]


class _Block(NamedTuple):
    """Rows of a group's scores, and the columns that the mode does not mask in all of these rows."""

    group: slice
    rows: slice
    columns: slice
    ahead: Any
    """Distance of each key ahead of each query."""
    corner: int
    """Distance of the last key ahead of the last query."""


def _blocks(form: Form, group: slice, q: Any, k: Any, masked: bool) -> Iterator[_Block]:
    samples, heads, queries, _ = q.shape
    keys, mode = k.shape[2], _mode(form, group) if masked else ALL
    step = max(1, _BLOCK // max(1, samples * heads * keys))
    for begin in range(0, queries, step):
        end = min(begin + step, queries)
        seen = {LEFT: end, RIGHT: end + keys - queries}.get(mode, keys)
        columns = slice(0, max(0, min(seen, keys)))
        ahead = np.arange(columns.stop) - np.arange(begin, end)[:, None]
        yield _Block(group, slice(begin, end), columns, ahead, keys - queries)


def _masked(form: Form, block: _Block, mask: Any) -> Any:
    """Return the mask of a block's scores, True where masked."""
    mode, ahead, corner = _mode(form, block.group), block.ahead, block.corner
    if mode == LEFT:
        return ahead > 0
    if mode == RIGHT:
        return ahead > corner
    if mode == BAND:
        return (ahead > corner + form.after) | (ahead < corner - form.before)
    if mode == SHORT_PREFIX:
        prefix = np.array(form.prefix[block.group])[:, None, None, None]
        return (ahead > corner) & (np.arange(block.columns.stop) >= prefix)
    own = mask if mask.ndim == 2 else _of_group(mask, block.group)
    given = own[..., block.rows, block.columns] != 0
    return given | (ahead > form.after) | (ahead < -form.before) if mode == ALL else given


def _bias(form: Form, block: _Block, bias: Any) -> Any:
    """Return the bias of a block's scores."""
    own = _of_group(bias, block.group) if bias.ndim > 1 else bias
    if form.bias_type not in (SLOPES, ROOTS):
        return (own if own.shape[2] == 1 else own[:, :, block.rows])[..., block.columns]
    starts = 0 if form.mode == FIRST_BAND and block.group.start else form.starts
    far = np.abs(block.ahead + starts).astype(own.dtype)
    return -own[..., None, None] * (np.sqrt(far) if form.bias_type == ROOTS else far)


def _scores(form: Form, block: _Block, q: Any, k: Any, given: Mapping[str, Any]) -> Any:
    """Return the scores (samples, heads, rows, columns) of a block, -Inf where masked."""
    found = _product(q[:, :, block.rows], k.swapaxes(2, 3))
    bias = None if given.get("bias") is None else _bias(form, block, given["bias"])
    if bias is not None and form.bias_type == ADD_FIRST:
        found += bias
    found *= form.scale
    if bias is not None and form.bias_type != ADD_FIRST:
        found += bias
    if given.get("mask") is not None:
        np.copyto(found, -np.inf, where=_masked(form, block, given["mask"]))
    return found


def _powers(scores: Any, largest: Any) -> Any:
    """Replace scores by e^(score - largest), which is 0 in a fully masked row."""
    scores -= np.where(np.isneginf(largest), largest.dtype.type(0), largest)
    return np.exp(scores, out=scores)


def _sink_power(sink: Any, largest: Any) -> Any:
    return _powers(np.broadcast_to(sink[:, None, None], largest.shape).copy(), largest)


def _divisor(total: Any) -> Any:
    return np.where(total == 0, total.dtype.type(1), total)


def _kept(form: Form, block: _Block, first: int, q: Any, k: Any, bits: Any) -> Any:
    """Return the dropout factors of a block's probabilities; bits are ordered by sample, head, query and key."""
    samples, heads, queries, _ = q.shape
    keys, rows = k.shape[2], block.rows
    size = (rows.stop - rows.start) * keys
    starts = first + (np.arange(samples * heads) * queries + rows.start) * keys
    parts = [
        np.unpackbits(bits[start // 8 : -(-(start + size) // 8)], bitorder="little")[start % 8 :][:size]
        for start in starts.tolist()
    ]
    found = np.stack(parts).reshape(samples, heads, -1, keys)[..., block.columns]
    return found * q.dtype.type(1 / form.keep)


class _Call:
    """Groups of a call, and the inputs that the forward and the backward function share."""

    def __init__(self, form: Form, given: Mapping[str, Any]) -> None:
        self.form, self.given = form, given
        self.groups = _groups(form, given["query"], given["key"])

    def queries(self, x: Any) -> list[Any]:
        """Split a tensor of queries."""
        return _split(self.form, x, self.form.heads, 0, self.groups)

    def keys(self, x: Any) -> list[Any]:
        """Split a tensor of keys."""
        return _split(self.form, x, self.form.kv_heads, 1, self.groups)

    def blocks(self) -> Iterator[tuple[int, _Block, Any, Any, Any, Any]]:
        """Yield the index of each block's group, the block, q, k, v and the dropout factors."""
        bits, first = self.given.get("bits"), 0
        tensors = self.queries(self.given["query"]), self.keys(self.given["key"]), self.keys(self.given["value"])
        for at, (group, q, k, v) in enumerate(zip(self.groups, *tensors, strict=True)):
            for block in _blocks(self.form, group, q, k, self.given.get("mask") is not None):
                kept = None if bits is None else _kept(self.form, block, first, q, k, bits)
                yield at, block, q, k[:, :, block.columns], v[:, :, block.columns], kept
            first += q[..., 0].size * k.shape[2]


def attend(form: Form, shapes: tuple[Shape, Shape, Shape], given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return each row's largest score and sum of exponentials, and the attention, in the outputs' shapes."""
    largest, total, attention = (np.zeros(shape, given["query"].dtype) for shape in shapes)
    call, sink = _Call(form, given), given.get("sink")
    found, tops, sums = call.queries(attention), *(_statistics(form, x, call.groups) for x in (largest, total))
    for at, block, q, k, v, kept in call.blocks():
        scores = _scores(form, block, q, k, given)
        top = scores.max(-1, initial=-np.inf, keepdims=True)
        if sink is not None:
            top = np.maximum(top, sink[:, None, None])
        powers = _powers(scores, top)
        sum_of = powers.sum(-1, keepdims=True, dtype=np.float64)
        if sink is not None:
            sum_of += _sink_power(sink, top)
        if kept is not None:
            powers *= kept
        tops[at][:, :, block.rows], sums[at][:, :, block.rows] = top, sum_of
        found[at][:, :, block.rows] = _product(powers, v) / _divisor(sum_of)
    for statistic in (largest, total):
        statistic[...] = statistic[..., :1]
    return largest, total, attention


def gradients(form: Form, shapes: tuple[Shape, ...], given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the gradients of query, key and value, then those requested of bias and sink, in the outputs' shapes."""
    results = [np.zeros(shape, given["query"].dtype) for shape in shapes]
    call, scale, heads = _Call(form, given), form.scale, form.kv_heads
    sink: Any = given.get("sink")
    dys, outs, dqs = (call.queries(x) for x in (given["dy"], given["attention"], results[0]))
    dks, dvs = (call.keys(x) for x in results[1:3])
    tops, sums = (_statistics(form, given[name], call.groups) for name in ("largest", "total"))
    further = dict(zip([name for name in ("dbias", "dsink") if given.get(name)], results[3:], strict=True))
    for at, block, q, k, v, kept in call.blocks():
        top, total, dy, out = (x[at][:, :, block.rows] for x in (tops, sums, dys, outs))
        shares = _powers(_scores(form, block, q, k, given), top)
        shares /= _divisor(total)
        mean = (dy * out).sum(-1, keepdims=True, dtype=np.float64).astype(dy.dtype)
        dscores = _product(dy, v.swapaxes(2, 3))
        used = shares
        if kept is not None:
            used = shares * kept
            dscores *= kept
        dscores -= mean
        dscores *= shares
        dvs[at][:, :, block.columns] += _joined(used, heads).swapaxes(2, 3) @ _joined(dy, heads)
        dqs[at][:, :, block.rows] = _product(dscores, k) * scale
        dk = _joined(dscores, heads).swapaxes(2, 3) @ _joined(q[:, :, block.rows], heads)
        dks[at][:, :, block.columns] += dk * scale
        if "dbias" in further:
            own = _of_group(further["dbias"], block.group)[..., block.columns]
            own = own if own.shape[2] == 1 else own[:, :, block.rows]
            added = dscores * scale if form.bias_type == ADD_FIRST else dscores
            own += added.sum(tuple(dim for dim in (0, 2) if own.shape[dim] == 1), keepdims=True)
        if "dsink" in further:
            share = _sink_power(sink, top) / _divisor(total)
            further["dsink"] -= (share * mean).sum((0, 2, 3), dtype=np.float64)
    return tuple(results)
