"""Norms over any dimensions in extended precision, from the documents' formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aclnn.core.dtypes import DataType as D
from tests.helpers.exact import ulp_of

Array = np.ndarray[Any, Any]
Expected = tuple[Any, ...]
Dims = tuple[int, ...]

#: Of the largest term, what float64 arithmetic may lose, and float32 lanes.
_LOSS, _NARROW_LOSS = 2.0**-44, 2.0**-19


def wide(array: Any, *shape: int) -> Array:
    """Convert an array to extended precision, in a shape."""
    return np.asarray(array, np.longdouble).reshape(shape)


def float32(number: float) -> Any:
    """Round an attribute to float32, as kernels get it."""
    return np.longdouble(np.float32(number))


def moments(x: Array, dims: Dims, eps: Any, centred: bool = True) -> tuple[Array, Array, Array]:
    """Return mean, biased variance and rstd; unless ``centred`` 0, mean square and reciprocal root mean square."""
    with np.errstate(all="ignore"):
        mean = x.mean(dims, keepdims=True) if centred else np.zeros_like(x.sum(dims, keepdims=True))
        variance = ((x - mean) ** 2).mean(dims, keepdims=True)
        return mean, variance, 1 / np.sqrt(variance + eps)


def normalized(x: Array, dims: Dims, eps: Any, w: Array, b: Array) -> tuple[Expected, dict[str, Expected]]:
    """Return (x - mean)·rstd·w + b, and mean, variance and rstd, each with the magnitude of its terms.

    The result is followed also by the magnitude of the terms (x - mean)·rstd·w and b.
    """
    mean, variance, rstd = moments(x, dims, eps)
    with np.errstate(all="ignore"):
        size, scaled = abs(x).mean(dims, keepdims=True), (x - mean) * rstd * w
        result = scaled + b, (abs(x) + size) * rstd * abs(w) + abs(b), abs(scaled) + abs(b)
        return result, {"mean": (mean, size), "variance": (variance, variance), "rstd": (rstd, rstd)}


def gradients(
    dy: Array, x: Array, mean: Array, rstd: Array, w: Array, dims: Dims, centred: bool = True
) -> Sequence[Array]:
    """Return the gradient for x, the magnitude of its terms, and each element's contribution to those for w and b."""
    with np.errstate(all="ignore"):
        xhat, g = (x - mean) * rstd, dy * w
        first = g.mean(dims, keepdims=True) if centred else 0 * g
        second = (g * xhat).mean(dims, keepdims=True)
        size = abs(g) + abs(xhat) * abs(g * xhat).mean(dims, keepdims=True) + abs(g).mean(dims, keepdims=True)
        return (g - first - xhat * second) * rstd, size * abs(rstd), dy * xhat, dy


def total(terms: Array, shape: Sequence[int]) -> Expected:
    """Return the sums of terms, and of their magnitudes, over the dimensions in which a shape has extent 1."""
    dims = tuple(dim for dim, extent in enumerate(shape) if extent == 1)
    with np.errstate(all="ignore"):
        return terms.sum(dims, keepdims=True), abs(terms).sum(dims, keepdims=True)


def sums_beside(dx: Any, shape: Sequence[int], **terms: Array) -> dict[str, Expected]:
    """Return sums of terms with their magnitudes, scaled for float32 accumulation if there is a 16-bit dx."""
    more = _NARROW_LOSS / _LOSS if dx and dx.dtype in (D.FLOAT16, D.BF16) else 1
    sums = {name: total(term, shape) for name, term in terms.items()}
    return {name: (exact, size * more) for name, (exact, size) in sums.items()}


def rounded(
    found: Mapping[str, Expected], outputs: Mapping[str, Any], more: Mapping[D, float] | None = None
) -> dict[str, Expected]:
    """Return exact values and error bounds of each output: one rounding, and the errors of the terms in float64.

    A third array in ``found`` is the magnitude of terms that 16-bit outputs are computed from in float32, whose errors
    are allowed, too. ``more`` is the number of ULP, by data type, that are allowed in addition to the rounding.
    """
    result = {}
    for name, output in outputs.items():
        exact, size, *near = (np.asarray(value, np.float64) for value in found[name])
        lost = np.nan_to_num(size) * _LOSS
        if near and output.dtype in (D.FLOAT16, D.BF16):
            lost = lost + np.nan_to_num(near[0]) * _NARROW_LOSS
        exact, lost = exact.reshape(output.shape), np.broadcast_to(lost, exact.shape).reshape(output.shape)
        units = 0.5001 + (more or {}).get(output.dtype, 0.0)
        result[name] = exact, lost + units * ulp_of(exact, output.dtype)
    return result


def channels(rows: Sequence[int], columns: Sequence[int]) -> tuple[int, ...]:
    """Return a shape (N, C, …) with the extents of rows and columns."""
    extents = (*rows, *columns)
    return extents if len(extents) > 1 else (1, *extents) if extents else (1, 1)


def group_forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return GroupNorm's results; for an empty tensor, statistics of zeros and NaN."""
    shape, group = arguments["self"].shape, arguments["group"]
    n, c, space = shape[0], shape[1], math.prod(shape[2:])
    if not math.prod(shape):
        return rounded(
            {"out": (np.empty(0), 0), **_statistics(np.zeros((n, group)), np.full((n, group), np.nan))}, outputs
        )
    given = grouped(arguments["self"], n, group, c, space, arguments["gamma"], arguments["beta"])
    found, statistics = _of_groups(given, arguments["eps"])
    return rounded({"out": found, **statistics}, outputs)


def _of_groups(given: tuple[Array, Array, Array], eps: float) -> tuple[Expected, dict[str, Expected]]:
    x, w, b = given
    found, statistics = normalized(x, (2, 3), float32(eps), w, b)
    return found, {"meanOut": statistics["mean"], "rstdOut": statistics["rstd"]}


def _statistics(mean: Array, rstd: Array) -> dict[str, tuple[Array, Any]]:
    return {"meanOut": (mean, 0), "rstdOut": (rstd, 0)}


def grouped(x: Any, n: int, group: int, c: int, space: int, w: Any, b: Any) -> tuple[Array, Array, Array]:
    """Return x, w and b as (N, G, C/G, HW)."""
    parameter = (1, group, c // group, 1)
    ones, zeros = np.ones(parameter, np.longdouble), np.zeros(parameter, np.longdouble)
    return (
        wide(x, n, group, c // group, space),
        ones if w is None else wide(w, *parameter),
        zeros if b is None else wide(b, *parameter),
    )


def group_backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return GroupNorm's gradients for given mean and rstd."""
    n, c, space, group = (arguments[name] for name in ("N", "C", "HxW", "group"))
    x, w, _ = grouped(arguments["input"], n, group, c, space, arguments["gamma"], None)
    if not x.size:
        return rounded({name: (np.zeros(output.shape), 0) for name, output in outputs.items()}, outputs)
    dy = wide(arguments["gradOut"], *x.shape)
    mean, rstd = (wide(arguments[name], n, group, 1, 1) for name in ("mean", "rstd"))
    dx, size, dw, db = gradients(dy, x, mean, rstd, w, (2, 3))
    sums = sums_beside(outputs.get("gradInput"), w.shape, gradGammaOut=dw, gradBetaOut=db)
    return rounded({"gradInput": (dx, size, size), **sums}, outputs)


def _in_channels(arguments: Mapping[str, Any], name: str, **absent: float) -> tuple[Array, list[Array]]:
    """Return a tensor as (N, C, HW), and tensors of channels as (1, C, 1)."""
    shape = arguments[name].shape
    x = wide(arguments[name], shape[0], shape[1], math.prod(shape[2:]))
    given = [(arguments[of], other) for of, other in absent.items()]
    return x, [
        np.full((1, shape[1], 1), other, np.longdouble) if g is None else wide(g, 1, -1, 1) for g, other in given
    ]


def batch_forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return BatchNorm's results and updated running statistics."""
    found: dict[str, Expected] = {}
    untouched = {name: (arguments[name], 0) for name in ("runningMean", "runningVar") if name in outputs}
    if not arguments["input"].size:
        zeros = np.zeros(arguments["input"].shape[1:2])
        found = {"output": (np.empty(0), 0), "saveMean": (zeros, 0), "saveInvstd": (zeros + np.nan, 0)}
        return rounded(found | untouched, outputs)
    parameters = {"weight": 1.0, "bias": 0.0, "runningMean": 0.0, "runningVar": 1.0}
    x, (w, b, running_mean, running_var) = _in_channels(arguments, "input", **parameters)
    eps, momentum = float32(arguments["eps"]), float32(arguments["momentum"])
    is_950 = not arguments["product"].name.startswith("ATLAS")
    if arguments["training"]:
        result, statistics = normalized(x, (0, 2), eps, w, b)
        (mean, size), (variance, _), (rstd, _) = statistics.values()
        n = x.size // x.shape[1]
        bessel = np.longdouble(n) / (n - 1) if n > 1 else np.longdouble(np.nan if is_950 else 1)
        found = {
            "output": result,
            "saveMean": (mean, size),
            "saveInvstd": (rstd, rstd) if is_950 else (variance, variance),
            "runningMean": (running_mean + momentum * (mean - running_mean), size + abs(running_mean)),
            "runningVar": (
                running_var + momentum * (variance * bessel - running_var),
                2 * variance + abs(running_var),
            ),
        }
    else:
        scaled = (x - running_mean) / np.sqrt(running_var + eps) * w
        size = abs(scaled) + abs(b)
        found = {**untouched, "output": (scaled + b, size, size)}
    return rounded(found, outputs)


def instance_forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return InstanceNorm's result, mean and variance."""
    if not outputs:
        return {}
    last = arguments["dataFormat"] == "NHWC"
    w, b = (wide(arguments[name], *((1, 1, 1, -1) if last else (1, -1, 1, 1))) for name in ("gamma", "beta"))
    x = wide(arguments["x"], *arguments["x"].shape)
    y, statistics = normalized(x, (1, 2) if last else (2, 3), float32(arguments["eps"]), w, b)
    return rounded({"y": y, **statistics}, {name: outputs[name] for name in ("y", "mean", "variance")})


def batch_backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return BatchNorm's gradients for given statistics."""
    if not outputs:
        return {}
    statistics = (
        {"saveMean": 0.0, "saveInvstd": 1.0} if arguments["training"] else {"runningMean": 0.0, "runningVar": 1.0}
    )
    x, (w, mean, second) = _in_channels(arguments, "input", weight=1.0, **statistics)
    dy = wide(arguments["gradOut"], *x.shape)
    given = arguments["training"] and not arguments["product"].name.startswith("ATLAS")
    rstd = second if given else 1 / np.sqrt(second + float32(arguments["eps"]))
    dx, size, dw, db = gradients(dy, x, mean, rstd, w, (0, 2))
    if not arguments["training"]:
        dx, size = w * rstd * dy, abs(w * rstd * dy)
    sums = sums_beside(outputs.get("gradInput"), w.shape, gradWeight=dw, gradBias=db)
    return rounded({"gradInput": (dx, size, size), **sums}, outputs)


def gemma(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the result of Gemma's RMSNorm and the reciprocal root mean square."""
    if not any(math.prod(output.shape) for output in outputs.values()):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    x = wide(arguments["x"], -1, arguments["gamma"].size)
    _, _, rstd = moments(x, (1,), float32(arguments["epsilon"]), centred=False)
    y = x * rstd * (1 + wide(arguments["gamma"], 1, -1))
    return rounded({"yOut": (y, abs(x * rstd), abs(y)), "rstdOut": (rstd, rstd)}, outputs)


def add_rms(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return RMSNorm of a sum, the sum and the reciprocal root mean square, in place or not."""
    x1, x2, y = ("x1Ref", "x2Ref", "x1Ref") if "x1Ref" in arguments else ("x1", "x2", "yOut")
    if not any(math.prod(output.shape) for output in outputs.values()):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    w = wide(arguments["gamma"], 1, -1)
    first, second = (wide(arguments[name], -1, w.size) for name in (x1, x2))
    x, size = first + second, abs(first) + abs(second)
    _, _, rstd = moments(x, (1,), float32(arguments["epsilon"]), centred=False)
    result = x * rstd * w
    found = {y: (result, size * rstd * abs(w), abs(result)), "rstdOut": (rstd, rstd)}
    return rounded(found | {"x2Ref" if x2 == "x2Ref" else "xOut": (x, size)}, outputs)


def _of_sum(terms: Sequence[Array], w: Array, b: Array, eps: Any) -> tuple[Expected, ...]:
    """Return LayerNorm of a sum, mean, rstd and the sum, each with the magnitude of its terms."""
    x, size = sum(terms), sum(map(abs, terms))
    mean, _, rstd = moments(x, (1,), eps)
    with np.errstate(all="ignore"):
        largest, scaled = (size + size.mean(1, keepdims=True)) * rstd * abs(w) + abs(b), (x - mean) * rstd * w
        return (scaled + b, largest, abs(scaled) + abs(b)), (mean, size.mean(1, keepdims=True)), (rstd, rstd), (x, size)


def add_layer(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return LayerNorm of a sum, and the sum; statistics of no elements are NaN."""
    if not (arguments["x1"].size and math.prod(outputs["yOut"].shape)):
        return rounded({name: (np.full(output.shape, np.nan), 0) for name, output in outputs.items()}, outputs)
    w, b = (wide(arguments[name], 1, -1) for name in ("gamma", "beta"))
    terms = [wide(arguments[name], -1, w.size) for name in ("x1", "x2", "biasOptional") if arguments[name] is not None]
    found = _of_sum(terms, w, b, float32(arguments["epsilon"]))
    return rounded(dict(zip(("yOut", "meanOut", "rstdOut", "xOut"), found, strict=True)), outputs)


def add_layer_gradients(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the gradients of LayerNorm of a sum for given mean and rstd."""
    if not math.prod(outputs["dxOut"].shape):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    w = wide(arguments["gamma"], 1, -1)
    dy, x1, x2 = (wide(arguments[name], -1, w.size) for name in ("dy", "x1", "x2"))
    mean, rstd = (wide(arguments[name], -1, 1) for name in ("mean", "rstd"))
    dx, size, dw, db = gradients(dy, x1 + x2, mean, rstd, w, (1,))
    dsum = 0 if arguments["dsumOptional"] is None else wide(arguments["dsumOptional"], *dy.shape)
    sums = sums_beside(outputs["dxOut"], w.shape, dgammaOut=dw, dbetaOut=db)
    return rounded({"dxOut": (dx + dsum, size + abs(dsum), size + abs(dsum)), **sums}, outputs)


def deep(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return LayerNorm of a weighted sum."""
    if not math.prod(outputs["yOut"].shape):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    w, b = (wide(arguments[name], 1, -1) for name in ("gamma", "beta"))
    alpha, x, gx = float32(arguments["alpha"]), *(wide(arguments[name], -1, w.size) for name in ("x", "gx"))
    y, mean, rstd, _ = _of_sum((alpha * x, gx), w, b, float32(arguments["epsilon"]))
    return rounded({"meanOut": mean, "rstdOut": rstd, "yOut": y}, outputs)


def deep_gradients(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the gradients of LayerNorm of a weighted sum for given mean and rstd."""
    if not math.prod(outputs["dxOut"].shape):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    w, alpha = wide(arguments["gamma"], 1, -1), float32(arguments["alpha"])
    dy, x, gx = (wide(arguments[name], -1, w.size) for name in ("dy", "x", "gx"))
    mean, rstd = (wide(arguments[name], -1, 1) for name in ("mean", "rstd"))
    dgx, size, dw, db = gradients(dy, alpha * x + gx, mean, rstd, w, (1,))
    found = {"dxOut": (alpha * dgx, abs(alpha) * size, abs(alpha) * size), "dgxOut": (dgx, size, size)}
    return rounded(found | sums_beside(outputs["dxOut"], w.shape, dgammaOut=dw, dbetaOut=db), outputs)


def group_swish(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return GroupNorm, followed by Swish unless that is disabled."""
    if not any(math.prod(output.shape) for output in outputs.values()):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    (n, c, *space), group = arguments["x"].shape, arguments["numGroups"]
    given = grouped(arguments["x"], n, group, c, math.prod(space), arguments["gamma"], arguments["beta"])
    (z, size, near), statistics = _of_groups(given, arguments["eps"])
    with np.errstate(all="ignore"):
        y = z / (1 + np.exp(-float32(arguments["swishScale"]) * z)) if arguments["activateSwish"] else z
    return rounded({"yOut": (y, size * 2, near * 2), **statistics}, outputs)


def group_swish_backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return the gradients of GroupNorm and Swish for given mean and rstd."""
    if not any(math.prod(output.shape) for output in outputs.values()):
        return rounded(dict.fromkeys(outputs, (np.empty(0), 0)), outputs)
    (n, c, *space), group = arguments["x"].shape, arguments["numGroups"]
    x, w, b = grouped(arguments["x"], n, group, c, math.prod(space), arguments["gamma"], arguments["beta"])
    mean, rstd = (wide(arguments[name], n, group, 1, 1) for name in ("mean", "rstd"))
    with np.errstate(all="ignore"):
        v = float32(arguments["swishScale"]) * ((x - mean) * rstd * w + b)
        # From e^-|v|, which does not overflow.
        e = np.exp(-abs(v))
        slope = np.where(v < 0, e * (1 + e + v), 1 + e * (1 + v)) / (1 + e) ** 2
        dy = wide(arguments["dy"], *x.shape)
        dx, size, dw, db = gradients(dy * slope, x, mean, rstd, w, (2, 3))
        # Near a zero of the derivative its terms cancel.
        _, near, *terms = gradients(dy * (1 + abs(v)), x, mean, rstd, w, (2, 3))
    names = "dgammaOut", "dbetaOut"
    exact = sums_beside(outputs["dxOut"], w.shape, **dict(zip(names, (dw, db), strict=True)))
    sizes = sums_beside(outputs["dxOut"], w.shape, **dict(zip(names, terms, strict=True)))
    sums = {name: (exact[name][0], sizes[name][1]) for name in names}
    return rounded({"dxOut": (dx, size, near), **sums}, outputs)


def group_silu(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return GroupNorm, followed by SiLU unless that is disabled."""
    shape, group = arguments["self"].shape, arguments["group"]
    n, c, space = shape[0], shape[1], math.prod(shape[2:])
    if not math.prod(shape):
        mean = 0.0 if arguments["product"].name.startswith("ATLAS") else np.nan
        statistics = _statistics(np.full((n, group), mean), np.full((n, group), np.nan))
        return rounded({"out": (np.empty(0), 0), **statistics}, outputs)
    given = grouped(arguments["self"], n, group, c, space, arguments["gamma"], arguments["beta"])
    (z, size, near), statistics = _of_groups(given, arguments["eps"])
    with np.errstate(all="ignore"):
        y = z / (1 + np.exp(-z)) if arguments.get("activateSilu", True) else z
    return rounded({"out": (y, size * 2, near * 2), **statistics}, outputs)


def _ada(arguments: Mapping[str, Any], name: str) -> tuple[Array, list[Array]]:
    """Return x as (B, S, H), and scale, weight and bias in shapes that broadcast to it."""
    *batch, s, h = arguments[name].shape
    b = math.prod(batch)
    parameters = (arguments["weightOptional"], 1.0), (arguments["biasOptional"], 0.0)
    given = [np.full(h, other, np.longdouble) if g is None else wide(g, h) for g, other in parameters]
    return wide(arguments[name], b, s, h), [wide(arguments["scale"], b, 1, h), *given]


def ada_forward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return AdaLayerNorm's results."""
    x, (scale, w, b) = _ada(arguments, "x")
    shift = wide(arguments["shift"], *scale.shape)
    (value, *sizes), statistics = normalized(x, (2,), float32(arguments["epsilon"]), w, b)
    found = {"out": (value * (1 + scale) + shift, *(size * (1 + abs(scale)) + abs(shift) for size in sizes))}
    return rounded(found | {f"{name}OutOptional": size for name, size in statistics.items()}, outputs)


def ada_backward(arguments: Mapping[str, Any], outputs: Mapping[str, Any]) -> dict[str, Expected]:
    """Return AdaLayerNorm's gradients for given mean and rstd."""
    x, (scale, w, b) = _ada(arguments, "input")
    dy = wide(arguments["gradOut"], *x.shape)
    mean, rstd = (wide(arguments[name], *x.shape[:2], 1) for name in ("mean", "rstd"))
    scaled = dy * (1 + scale)
    dx, size, dw, db = gradients(scaled, x, mean, rstd, w, (2,))
    weighted = (x - mean) * rstd * w
    expected = outputs.get("gradInputOut")
    of_samples = sums_beside(expected, scale.shape, gradScaleOut=dy * (weighted + b), gradShiftOut=dy)
    size_of_scale = sums_beside(expected, scale.shape, terms=abs(dy) * (abs(weighted) + abs(b)))["terms"][1]
    found = {
        "gradInputOut": (dx, size, size),
        **of_samples,
        "gradScaleOut": (of_samples["gradScaleOut"][0], size_of_scale),
        **sums_beside(expected, (1, 1, x.shape[2]), gradWeightOut=dw, gradBiasOut=db),
    }
    return rounded(found, outputs)
