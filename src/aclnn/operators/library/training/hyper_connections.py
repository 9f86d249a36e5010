"""Streams of a layer with one another (mHC): aclnnMhcPre to V2, aclnnMhcSinkhorn, aclnnMhcPost, their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from aclnn.core.checks import (
    dims_between,
    dtype_in,
    each,
    elsewhere,
    extents,
    listing,
    not_empty,
    on,
    one_of,
    public_format,
    restricted,
    rule,
    same_dtype,
    same_format,
    same_shape,
    shape_is,
    unless_empty,
    value_is,
    with_code,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Check, Kind, Library, Operator, present
from aclnn.core.products import CLASS_950
from aclnn.core.status import ACLNN_ERR_INNER_NULLPTR, ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import MODERN, attribute, declared, logistic, optional_in, tensor_in, tensor_out
from aclnn.operators.library.quantization.quantized_norms import reciprocal_rms

_HALVES = (D.FLOAT16, D.BF16)
_STREAMS = (4, 6, 8)
_PADDED = 8
"""Row length of the intermediate results saved by Sinkhorn."""
_MOST_ITERATIONS, _WIDEST, _BLOCK = 100, 100000, 128
_KEPT = ("normOut", "sumOut")
_GIVEN = ("x", "hRes", "hOut", "hPost")
_GRADIENTS = ("gradX", "gradHRes", "gradHOut", "gradHPost")


def _square(name: str) -> Check:
    return value_is(
        "matrices of 4, 6 or 8 rows and columns",
        lambda got: got[-2:][0] == got[-2:][1] and got[-2:][0] in _STREAMS,
        name,
    )


def _is_kept(call: Call, name: str) -> bool:
    """Return True if all steps' results are to be saved: a tensor of one element counts as absent."""
    return call[name] is not None and call[name].size != 1


def _keeps(call: Call) -> bool:
    return all(_is_kept(call, name) for name in _KEPT)


def _both_or_neither(call: Call) -> str | None:
    if _is_kept(call, _KEPT[0]) == _is_kept(call, _KEPT[1]):
        return None
    got, none = sorted(_KEPT, key=lambda name: not _is_kept(call, name))
    return f"{none}: expected room for all steps (as {got} has), got none"


def _as_listed(call: Call, name: str) -> tuple[int, ...]:
    """Return the documented shape of the saved steps' results."""
    *batch, rows, columns = call["x"].shape
    return (2 * call["numIters"], rows, *((columns,) if name == _KEPT[0] else ()), *batch)


def _room(call: Call, name: str) -> str | None:
    *batch, rows, _ = call["x"].shape
    padded = 2 * call["numIters"] * math.prod(batch) * (rows if name == _KEPT[0] else 1) * _PADDED
    listed, got = _as_listed(call, name), call[name]
    if got.size == padded or got.shape == listed:
        return None
    return f"expected {padded} elements (of rows of {_PADDED}) or shape {extents(listed)}, got {extents(got.shape)}"


def _kept(call: Call, name: str, values: Any, batch: int) -> Any:
    """Arrange all steps' results as in their tensor: batch dimensions last, or rows padded."""
    shape = call[name].shape
    if shape == _as_listed(call, name):
        return np.moveaxis(values, range(1, 1 + batch), range(-batch, 0))
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, _PADDED - values.shape[-1])]).reshape(shape)


def _sinkhorn_work(call: Call) -> Library:
    eps, steps, keeps = call["eps"], 2 * call["numIters"], _keeps(call)

    def iterate(x: Any) -> Any:
        values = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
        norms, sums = [values / values.sum(-1, keepdims=True) + eps], [np.ones(x.shape[:-1])]
        for step in range(1, steps):
            total = norms[-1].sum(-2 if step % 2 else -1, keepdims=True) + eps
            norms.append(norms[-1] / total)
            sums.append(total.reshape(x.shape[:-1]))
        batch = x.ndim - 2
        kept = (_kept(call, name, np.stack(all_of), batch) for name, all_of in zip(_KEPT, (norms, sums), strict=True))
        return (norms[-1], *kept) if keeps else norms[-1]

    return Library(iterate, ("x",), ("output", *(_KEPT if keeps else ())))


def _steps(call: Call) -> int:
    return int(call[_KEPT[0]].size // max(1, call["gradOutput"].size // call["gradOutput"].shape[-1] * _PADDED))


def _whole_steps(call: Call) -> str | None:
    rows, got = call["gradOutput"].size // call["gradOutput"].shape[-1] * _PADDED, call[_KEPT[0]].size
    if got % (2 * rows) == 0 and 1 <= got // (2 * rows) <= _MOST_ITERATIONS:
        return None
    return f"{_KEPT[0]}: expected from 1 to {_MOST_ITERATIONS} times {2 * rows} elements, got {got}"


def _sums_of_steps(call: Call) -> str | None:
    expected, got = _steps(call) * math.prod(call["gradOutput"].shape[:-2]) * _PADDED, call[_KEPT[1]].size
    return None if got == expected else f"{_KEPT[1]}: expected {expected} elements (of rows of {_PADDED}), got {got}"


def _sinkhorn_gradient_work(call: Call) -> Library | None:
    if call["gradOutput"].size == 0:
        return None
    shape, steps = call["gradOutput"].shape, _steps(call)
    *batch, rows, _ = shape

    def back(grad: Any, norms: Any, sums: Any) -> Any:
        grad = grad.astype(np.float64)
        norms = norms.reshape(steps, *batch, rows, _PADDED)[..., :rows]
        sums = sums.reshape(steps, *batch, _PADDED)[..., :rows]
        for step in range(steps - 1, 0, -1):
            along = -2 if step % 2 else -1
            shared = (grad * norms[step]).sum(along, keepdims=True)
            grad = (grad - shared) / np.expand_dims(sums[step], along)
        return (grad - (grad * norms[0]).sum(-1, keepdims=True)) * norms[0]

    return Library(back, ("gradOutput", *_KEPT), ("out",))


def _shape_of(name: str) -> Callable[[Call], tuple[int, ...]]:
    """Return the shape of a tensor that accompanies x: streams × streams, one row for all, or one number per stream."""

    def shape(call: Call) -> tuple[int, ...]:
        *batch, streams, width = call["x"].shape
        last = {"Res": (streams, streams), "Out": (width,), "Post": (streams,), "X": (streams, width)}
        return (*batch, *next(last[key] for key in last if name.endswith(key)))

    return shape


def _shapes(*names: str) -> tuple[Check, ...]:
    return tuple(shape_is("that with x", _shape_of(name), name) for name in names)


def _four_streams(call: Call) -> str | None:
    streams, width = call["x"].shape[-2:]
    if streams == _STREAMS[0] and width % _BLOCK == 0 and 1 <= width <= _WIDEST:
        return None
    limits = f"{_STREAMS[0]} streams of a multiple of {_BLOCK} elements up to {_WIDEST}"
    return f"x: expected {limits} on {call.product.title}, got {extents(call['x'].shape)}"


def _inputs(call: Call) -> tuple[str, ...]:
    return tuple(name for name in ("gradOutput", *_GIVEN) if call.arguments.get(name) is not None)


def _mixed(x: Any, res: Any, transposed: bool) -> Any:
    """Mix the streams by a matrix."""
    res = res.astype(np.float64)
    return (res.swapaxes(-1, -2) if transposed else res) @ x.astype(np.float64)


def _post_work(call: Call) -> Library | None:
    if any(call[name].size == 0 for name in _inputs(call)):
        return None

    def connect(x: Any, *given: Any) -> Any:
        *res, out, post = given
        return (_mixed(x, res[0], transposed=True) if res else x) + post[..., None] * out[..., None, :]

    return Library(connect, _inputs(call), ("out",))


def _post_gradient_work(call: Call) -> Library:
    def back(grad: Any, x: Any, *given: Any) -> tuple[Any, ...]:
        *res, out, post = given
        wide = grad.astype(np.float64)
        return (
            _mixed(wide, res[0], transposed=False) if res else wide,
            x.astype(np.float64) @ wide.swapaxes(-1, -2),
            (post[..., None] * wide).sum(-2),
            (out[..., None, :] * wide).sum(-1),
        )

    return Library(back, _inputs(call), _GRADIENTS)


_BEFORE = ("invRmsOptional", "hMixOptional", "hPreOptional")
_PARTS = 2, 3


def _keeps_all(call: Call) -> bool:
    return all(call[name] is not None for name in _BEFORE)


def _has_matrices(call: Call) -> bool:
    return bool(call["alpha"].shape == _PARTS[1:])


def _wanted_matrices(call: Call) -> str | None:
    missing = call["hRes"] is None and _has_matrices(call)
    return "hRes: expected an object with alpha of 3 numbers, got null" if missing else None


def _wide_streams(call: Call) -> str | None:
    streams, width = call["x"].shape[-2:]
    if streams in _STREAMS and width % 16 == 0 and 1 <= width <= 16384:
        return None
    limits = "4, 6 or 8 streams of a multiple of 16 elements up to 16384"
    return f"x: expected {limits}, got {extents(call['x'].shape)}"


def _numbers_of_matrices(call: Call) -> tuple[int, ...]:
    """Return the allowed counts of mixing coefficients: one per pair or, before Ascend 950, permutation of streams."""
    streams = call["x"].shape[-2]
    if not _has_matrices(call):
        return (0,)
    return (streams * streams, *(() if call.product in CLASS_950 else (math.factorial(streams),)))


def _projections(call: Call) -> str | None:
    streams, width = call["x"].shape[-2:]
    allowed = [(2 * streams + numbers, streams * width) for numbers in _numbers_of_matrices(call)]
    got = call["phi"].shape
    return None if got in allowed else f"phi: expected shape {listing(map(extents, allowed))}, got {extents(got)}"


def _of_matrices(call: Call) -> tuple[int, ...]:
    *batch, streams, _ = call["x"].shape
    numbers = call["phi"].shape[0] - 2 * streams
    return (*batch, *((streams, streams) if numbers == streams * streams else (numbers,)))


def _before_shape(name: str) -> Callable[[Call], tuple[int, ...]]:
    def shape(call: Call) -> tuple[int, ...]:
        *batch, streams, _ = call["x"].shape
        last = {"invRmsOptional": (), "hMixOptional": call["phi"].shape[:1], "hPreOptional": (streams,)}
        return (*batch, *last[name])

    return shape


def _pre_work(call: Call) -> Library:
    *batch, streams, width = call["x"].shape
    norm_eps, eps, mixed, matrices = call["normEps"], call["hcEps"], _has_matrices(call), call["hRes"] is not None
    inputs = ("x", "phi", "alpha", "bias", *(("gammaOptional",) if call["gammaOptional"] is not None else ()))
    outputs = ("hIn", "hPost", *(("hRes",) if matrices else ()), *(_BEFORE if _keeps_all(call) else ()))

    def project(x: Any, phi: Any, alpha: Any, bias: Any, gamma: Any = None) -> tuple[Any, ...]:
        x = x.astype(np.float64)
        rms = reciprocal_rms(x, (-1, -2), norm_eps)[..., 0, 0]
        mix = (x if gamma is None else x * gamma).reshape(*batch, streams * width) @ phi.T.astype(np.float64)
        factors = np.repeat(alpha.astype(np.float64), (streams, streams, len(bias) - 2 * streams)[: len(alpha)])
        numbers = mix * rms[..., None] * factors + bias
        pre, post, res = np.split(numbers, (streams, 2 * streams), axis=-1)
        pre, post = logistic(pre) + eps, 2 * logistic(post) + (0 if mixed else eps)
        found = [(pre[..., None] * x).sum(-2), post]
        found += [res.reshape(call["hRes"].shape) if mixed else np.zeros(1)] if matrices else []
        return (*found, *((rms, mix, pre) if _keeps_all(call) else ()))

    return Library(project, inputs, outputs)


_ARRIVING = ("gradHIn", "gradHPost", "gradHRes")
_FOUND = ("invRms", "hMix", "hPre", "hPost")
_OF_PRE = ("gradX", "gradPhi", "gradAlpha", "gradBias")


def _beside_gamma(*checks: Check) -> tuple[Check, ...]:
    return restricted("with gamma", lambda call: call["gamma"] is not None, *checks)


def _numbers(call: Call) -> int:
    count: int = call["phi"].shape[0]
    return count


def _in_batch(last: Callable[[Call], tuple[int, ...]]) -> Callable[[Call], tuple[int, ...]]:
    return lambda call: (*call["x"].shape[:-2], *last(call))


def _aligned_streams(call: Call) -> str | None:
    streams, width = call["x"].shape[-2:]
    if streams in _STREAMS and width % 64 == 0 and width <= 16384:
        return None
    limits = "4, 6 or 8 streams of a multiple of 64 elements up to 16384"
    return f"x: expected {limits}, got {extents(call['x'].shape)}"


def _pre_gradient_work(call: Call) -> Library:
    streams, width = call["x"].shape[-2:]
    eps, has_gamma, adds = call["hcEps"], call["gamma"] is not None, call["gradXPostOptional"] is not None

    def back(*arrays: Any) -> tuple[Any, ...]:
        x, phi, alpha, of_in, of_post, of_res, rms, mix, pre, post, *more = (each.astype(np.float64) for each in arrays)
        gamma = more.pop(0) if has_gamma else np.ones((streams, width))
        share = pre - eps
        gates = (
            (of_in[..., None, :] * x).sum(-1) * share * (1 - share),
            of_post * post * (1 - post / 2),
            of_res.reshape(*x.shape[:-2], len(phi) - 2 * streams),
        )
        of_numbers = np.concatenate(gates, -1)
        scaled = np.split(of_numbers * mix * rms[..., None], (streams, 2 * streams), -1)
        of_mix = of_numbers * np.repeat(alpha, (streams, streams, len(phi) - 2 * streams))
        of_rms = (of_mix * mix).sum(-1)
        of_mix = of_mix * rms[..., None]
        of_rows = (of_mix @ phi).reshape(x.shape)
        of_phi = of_mix.reshape(-1, len(phi)).T @ (x * gamma).reshape(-1, streams * width)
        of_x = of_in[..., None, :] * pre[..., None] + of_rows * gamma
        of_x = of_x - (of_rms * rms**3 / (streams * width))[..., None, None] * x + (more[0] if adds else 0)
        batch = tuple(range(x.ndim - 2))
        of_alpha = np.array([part.sum() for part in scaled])
        found = of_x, of_phi, of_alpha, of_numbers.sum(batch)
        return (*found, (x * of_rows).sum(batch)) if has_gamma else found

    more = (*(("gamma",) if has_gamma else ()), *(("gradXPostOptional",) if adds else ()))
    outputs = (*_OF_PRE, *(("gradGamma",) if has_gamma else ()))
    return Library(back, ("x", "phi", "alpha", *_ARRIVING, *_FOUND, *more), outputs)


_RES = optional_in("hRes", "matrices of streams by streams; FLOAT; on Ascend 950 null is the identity")
_BESIDE = (
    tensor_in("x", "streams, in the last two dimensions; FLOAT16 or BF16"),
    _RES,
    tensor_in("hOut", "the layer's output"),
    tensor_in("hPost", "the share of the layer's output for each stream; FLOAT"),
)


def _pre(version: int) -> Operator:
    """aclnnMhcPre, or the version that says how precise the product is."""
    mode = () if version == 1 else (attribute("opImplMode", Kind.INT64, "0: FLOAT, 1: HFLOAT32; computed the same"),)
    return declared(
        "mhc_pre" + f"_v{version}" * (version > 1),
        "hMix = (x * gammaOptional) @ phi^T, p = hMix * invRms * alpha + bias, invRms = (mean(x^2) + normEps)^-0.5; "
        "hPre = sigmoid(p[:n]) + hcEps, hPost = 2 * sigmoid(p[n:2n]), hRes = p[2n:], hIn = sum of hPre[i] * x[i]",
        "Decide how streams enter a layer, take what it answers, and mix.",
        (
            tensor_in("x", "streams, in the last two dimensions; FLOAT16 or BF16"),
            tensor_in("phi", "a row for each number that is decided; FLOAT"),
            tensor_in("alpha", "factors of the two or three kinds of numbers; FLOAT"),
            tensor_in("bias", "what is added to each number; FLOAT"),
            optional_in("gammaOptional", "(streams, elements): factors of x for phi; FLOAT; null: 1"),
            attribute("normEps", Kind.DOUBLE, "is added to the mean of squares"),
            attribute("hcEps", Kind.DOUBLE, "is added to hPre, with two kinds to hPost"),
            *mode,
            tensor_out("hIn", "what enters the layer"),
            tensor_out("hPost", "how much each stream takes of its answer; FLOAT"),
            tensor_out("hRes", "how streams mix, before Sinkhorn's scaling; FLOAT; 0 with two kinds", optional=True),
            tensor_out("invRmsOptional", "for the gradient; FLOAT", optional=True),
            tensor_out("hMixOptional", "for the gradient; FLOAT", optional=True),
            tensor_out("hPreOptional", "for the gradient; FLOAT", optional=True),
        ),
        (
            rule("matrices of three kinds: hRes", _wanted_matrices, ACLNN_ERR_PARAM_NULLPTR),
            *(one_of(parameter.name, 0, 1) for parameter in mode),
            dtype_in(set(_HALVES), "x"),
            dtype_in({D.FLOAT}, "phi", "alpha", "bias", "gammaOptional", "hPost", "hRes", *_BEFORE),
            same_dtype("hIn", "x"),
            dims_between(3, 4, "x"),
            not_empty("x"),
            value_is("shape [2] or [3]", lambda got: got in ((_PARTS[0],), (_PARTS[1],)), "alpha"),
            *on(CLASS_950, rule("streams that the product takes: x", _wide_streams)),
            *elsewhere(CLASS_950, rule("four streams: x", _four_streams)),
            rule("a row for each number: phi", _projections),
            shape_is("one for each number", lambda call: call["phi"].shape[:1], "bias"),
            shape_is("that of streams", lambda call: call["x"].shape[-2:], "gammaOptional"),
            shape_is("one stream", lambda call: (*call["x"].shape[:-2], call["x"].shape[-1]), "hIn"),
            shape_is("a number for each stream", lambda call: call["x"].shape[:-1], "hPost"),
            *restricted("with three kinds", _has_matrices, shape_is("that of matrices", _of_matrices, "hRes")),
            *restricted(
                "with all three",
                _keeps_all,
                *(shape_is("that kept for the gradient", _before_shape(name), name) for name in _BEFORE),
            ),
        ),
        _pre_work,
        dtypes=_HALVES,
        products=MODERN if version == 1 else CLASS_950,
    )


OPERATORS = (
    declared(
        "mhc_sinkhorn",
        "norm[0] = softmax(x) + eps, norm[k] = norm[k - 1] / sum[k], sum[k] = norm[k - 1] summed over columns of odd "
        "and rows of even steps, plus eps; output = norm[2 * numIters - 1]",
        "Sinkhorn normalization: scale exponentials until rows and columns sum to 1.",
        (
            tensor_in("x", "square matrices of 4, 6 or 8 rows; FLOAT"),
            attribute("eps", Kind.FLOAT, "the term added to the sums"),
            attribute("numIters", Kind.INT64, "the number of iterations, from 1 to 100"),
            tensor_out("output", "the doubly stochastic matrices"),
            tensor_out("normOut", "the results of all steps, for the gradient", optional=True),
            tensor_out("sumOut", "the sums of all steps, for the gradient", optional=True),
        ),
        (
            rule(f"both or neither: {', '.join(_KEPT)}", _both_or_neither),
            present("x", "output"),
            dtype_in({D.FLOAT}, "x", "output"),
            *restricted("with both", _keeps, dtype_in({D.FLOAT}, *_KEPT)),
            same_shape("output", "x"),
            value_is(f"from 1 to {_MOST_ITERATIONS}", lambda got: 1 <= got <= _MOST_ITERATIONS, "numIters"),
            dims_between(3, 4, "x"),
            _square("x"),
            same_format("output", "x"),
            *restricted("with both", _keeps, public_format(*_KEPT)),
            not_empty("x"),
            *restricted("with both", _keeps, each("room for all steps", _KEPT, _room)),
        ),
        _sinkhorn_work,
        dtypes=(D.FLOAT,),
        products=CLASS_950,
    ),
    declared(
        "mhc_sinkhorn_backward",
        "back through the steps of aclnnMhcSinkhorn: grad = (grad - sum of grad * normOut[k]) / sumOut[k], at last "
        "out = (grad - sum of grad * normOut[0]) * normOut[0]",
        "Gradient of the Sinkhorn normalization with respect to its input.",
        (
            tensor_in("gradOutput", "the gradient with respect to the output; FLOAT"),
            tensor_in("normOut", "the results of all steps, in rows of 8"),
            tensor_in("sumOut", "the sums of all steps, in rows of 8"),
            tensor_out("out", "the gradient with respect to x"),
        ),
        (
            dtype_in({D.FLOAT}, "gradOutput", *_KEPT, "out"),
            public_format("gradOutput", *_KEPT, "out"),
            dims_between(3, 4, "gradOutput"),
            _square("gradOutput"),
            same_shape("out", "gradOutput"),
            *unless_empty(
                ("gradOutput",),
                rule(f"of whole steps: {_KEPT[0]}", _whole_steps),
                rule(f"of as many steps: {_KEPT[1]}", _sums_of_steps),
            ),
        ),
        _sinkhorn_gradient_work,
        dtypes=(D.FLOAT,),
        products=CLASS_950,
    ),
    _pre(1),
    _pre(2),
    declared(
        "mhc_pre_backward",
        "back through aclnnMhcPre: gradX = gradHIn * hPre + gradients of hMix and invRms + gradXPostOptional",
        "Gradients of aclnnMhcPre.",
        (
            tensor_in("x", "streams, in the last two dimensions; FLOAT16 or BF16"),
            tensor_in("phi", "the projection, one row per coefficient; FLOAT"),
            tensor_in("alpha", "the factors of the three kinds of coefficients; FLOAT"),
            tensor_in("gradHIn", "the gradient with respect to the layer's input"),
            tensor_in("gradHPost", "the gradient with respect to hPost; FLOAT"),
            tensor_in("gradHRes", "the gradient with respect to hRes; FLOAT"),
            tensor_in("invRms", "as aclnnMhcPre keeps it; FLOAT"),
            tensor_in("hMix", "as aclnnMhcPre keeps it; FLOAT"),
            tensor_in("hPre", "as aclnnMhcPre keeps it; FLOAT"),
            tensor_in("hPost", "as aclnnMhcPre found it; FLOAT"),
            optional_in("gamma", "(streams, elements): factors of x for phi; FLOAT; null: 1"),
            optional_in("gradXPostOptional", "an addend of the gradient with respect to x"),
            attribute("hcEps", Kind.FLOAT, "the term that was added to hPre"),
            *(
                tensor_out(name, f"the gradient with respect to {of}", const=True)
                for name, of in zip(_OF_PRE, ("x", "phi", "alpha", "bias"), strict=True)
            ),
            tensor_out(
                "gradGamma", "the gradient with respect to gamma, if that is given; FLOAT", const=True, optional=True
            ),
        ),
        (
            present("x", "phi", "alpha", *_ARRIVING, *_FOUND, *_OF_PRE),
            *_beside_gamma(present("gradGamma")),
            not_empty("x", "phi", "alpha", *_ARRIVING, *_FOUND),
            dims_between(3, 4, "x"),
            shape_is("three", lambda call: (3,), "alpha", "gradAlpha"),
            rule("a row for each number: phi", _projections),
            shape_is("that of streams", lambda call: call["x"].shape[-2:], "gamma"),
            shape_is("one stream", _in_batch(lambda call: call["x"].shape[-1:]), "gradHIn"),
            shape_is("a number for each stream", lambda call: call["x"].shape[:-1], "gradHPost", "hPre", "hPost"),
            shape_is("that of matrices", _of_matrices, "gradHRes"),
            shape_is("a number", lambda call: call["x"].shape[:-2], "invRms"),
            shape_is("as many numbers", _in_batch(lambda call: (_numbers(call),)), "hMix"),
            *(same_shape(name, "x") for name in ("gradX", "gradXPostOptional")),
            same_shape("gradPhi", "phi"),
            shape_is("one for each number", lambda call: (_numbers(call),), "gradBias"),
            *_beside_gamma(same_shape("gradGamma", "gamma")),
            dtype_in(set(_HALVES), "x"),
            dtype_in({D.FLOAT}, "phi", "alpha", "gamma", *_ARRIVING[1:], *_FOUND, *_OF_PRE[1:], "gradGamma"),
            *(same_dtype(name, "x") for name in ("gradHIn", "gradX", "gradXPostOptional")),
            public_format("x", "phi", "alpha", "gamma", *_ARRIVING, *_FOUND),
            *on(CLASS_950, *with_code(ACLNN_ERR_INNER_NULLPTR, rule("streams of whole vectors: x", _aligned_streams))),
            *elsewhere(CLASS_950, *with_code(ACLNN_ERR_INNER_NULLPTR, rule("streams with a kernel: x", _four_streams))),
        ),
        _pre_gradient_work,
        dtypes=_HALVES,
    ),
    declared(
        "mhc_post",
        "out[j] = sum over i of hRes[i, j] * x[i] + hPost[j] * hOut",
        "Mix the streams, and add the layer's output to each.",
        (*_BESIDE, tensor_out("out", "the streams for the next layer")),
        (
            present("x", "hOut", "hPost", "out"),
            *elsewhere(CLASS_950, present("hRes")),
            public_format("x", "out"),
            dtype_in(set(_HALVES), "x"),
            dtype_in({D.FLOAT}, "hRes"),
            same_dtype("hOut", "x"),
            dtype_in({D.FLOAT}, "hPost"),
            same_dtype("out", "x"),
            dims_between(3, 4, "x"),
            *_shapes("hRes", "hOut", "hPost"),
            same_shape("out", "x"),
            *elsewhere(CLASS_950, *with_code(ACLNN_ERR_INNER_NULLPTR, rule("streams with a kernel: x", _four_streams))),
        ),
        _post_work,
        dtypes=_HALVES,
    ),
    declared(
        "mhc_post_backward",
        "gradX = hRes @ gradOutput, gradHRes = x @ gradOutput^T, gradHOut = sum over j of hPost[j] * gradOutput[j], "
        "gradHPost[j] = sum of hOut * gradOutput[j]",
        "Gradients of aclnnMhcPost.",
        (
            tensor_in("gradOutput", "the gradient with respect to the output"),
            *_BESIDE,
            *(
                tensor_out(name, f"the gradient with respect to {of}")
                for name, of in zip(_GRADIENTS, _GIVEN, strict=True)
            ),
        ),
        (
            present("gradOutput", "x", "hOut", "hPost", *_GRADIENTS),
            *elsewhere(CLASS_950, present("hRes")),
            dtype_in(set(_HALVES), "gradOutput"),
            *(same_dtype(name, "gradOutput") for name in ("x", "hOut", "gradX", "gradHOut")),
            dtype_in({D.FLOAT}, "hRes", "hPost", "gradHRes", "gradHPost"),
            public_format("gradOutput", *_GIVEN, *_GRADIENTS),
            dims_between(3, 4, "x"),
            same_shape("gradOutput", "x"),
            *_shapes("hRes", "hOut", "hPost", *_GRADIENTS),
            not_empty("x"),
            *on(CLASS_950, value_is("4, 6 or 8 streams", lambda got: got[-2] in _STREAMS, "x")),
            *elsewhere(CLASS_950, rule("four streams: x", _four_streams)),
        ),
        _post_gradient_work,
        dtypes=_HALVES,
    ),
)
