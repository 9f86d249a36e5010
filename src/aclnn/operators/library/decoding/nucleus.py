"""Top-k and top-p filtering of logits, and sampling: aclnnApplyTopKTopP, aclnnTopKTopPSample …"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aclnn.core.checks import (
    FLOATING,
    dims_between,
    dtype_in,
    floating,
    generated,
    null,
    only_if,
    public_format,
    rule,
    same_dtype,
    same_shape,
    shape_is,
    value_is,
)
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import float32
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter, present
from aclnn.core.products import A2_CLASS
from aclnn.core.status import ACLNN_ERR_PARAM_NULLPTR
from aclnn.operators.library.common import (
    MODERN,
    attribute,
    library_operator,
    optional_in,
    support,
    tensor_in,
    tensor_out,
)
from aclnn.operators.library.quantization.quantization import given


def _apply(logits: Any, p: Any = None, k: Any = None) -> Any:
    """Remove logits below the k-th largest, and the smallest ones whose probabilities add up to at most 1 - p."""
    columns = logits.shape[1]
    if columns == 1:
        return logits
    order = np.argsort(logits, axis=1, kind="stable")
    rising = np.take_along_axis(logits, order, 1).astype(np.float64)
    if k is not None:
        kept = np.where((k > 0) & (k <= columns), k, columns)[:, None]
        rising[rising < np.take_along_axis(rising, columns - kept, 1)] = -np.inf
    if p is not None:
        shares = np.exp(rising - rising[:, -1:])
        below = np.cumsum(shares / shares.sum(1, keepdims=True), axis=1) <= 1 - p[:, None].astype(np.float64)
        below[:, -1] = False
        rising[below] = -np.inf
    found = np.empty_like(rising)
    np.put_along_axis(found, order, rising, 1)
    return found


def _work(call: Call) -> Library | None:
    if call["out"].size == 0:
        return None
    names = given(call, "p", "k")

    def apply(logits: Any, *thresholds: Any) -> Any:
        return _apply(logits, **dict(zip(names, thresholds, strict=True)))

    return Library(apply, ("logits", *names), ("out",))


def _neither(call: Call) -> str | None:
    return "p, k: expected at least one of them, got null for both" if call["p"] is None and call["k"] is None else None


def _a_row(call: Call) -> tuple[int, ...]:
    return call["logits"].shape[:1]


_MOST_SORTED, _MOST_WORDS = 1024, 2**20
_CHOSEN, _LEFT = "logitsSelectIdx", "logitsTopKPSelect"
_SORTED = ("logitsIdx", "logitsSortMasked")


def _shares(logits: Any) -> Any:
    powers = np.exp(logits - logits.max())
    return powers / powers.sum()


def _sorted_wanted(call: Call) -> bool:
    return bool(call.arguments.get("isNeedSampleResult", False))


def _candidates(row: Any, k: int, p: float, least: float, most: int, unscaled: bool) -> tuple[Any, Any]:
    """Return the candidate words of a row and their probabilities, in descending order if any word is excluded."""
    logits = row.astype(np.float64)
    order = np.arange(len(row))
    limited = 1 <= k <= min(most, len(row))
    if limited or p < 1 or least >= 1:
        order = np.argsort(-logits, kind="stable")
    if limited:
        order = order[:k]
    shares = _shares(logits[order]) if unscaled else logits[order]
    kept = np.ones(len(order), bool)
    if p < 1:
        kept = np.cumsum(shares) - shares < p if p > 0 else np.arange(len(order)) == 0
    order, shares = order[kept], shares[kept]
    if p <= 0 and unscaled:
        shares[:1] = 1.0
    if least > 0:
        kept = shares >= shares.max() * least if least < 1 else np.arange(len(order)) == 0
        order, shares = order[kept], shares[kept]
    return order, shares


def _sample_work(call: Call) -> Library | None:
    if call["logits"].size == 0:
        return None
    arguments = call.arguments
    most = min(-(-arguments.get("ksMax", _MOST_SORTED) // 8) * 8, _MOST_SORTED)
    unscaled, epsilon = bool(arguments.get("inputIsLogits", True)), float32(call["eps"])
    wanted, left = _sorted_wanted(call), call["isNeedLogits"]
    results = (*((_LEFT,) if left else ()), *(_SORTED if wanted else (_CHOSEN,)))
    others = given(call, "q", "minPs")

    def sample(logits: Any, counts: Any, shares: Any, *optional: Any) -> Any:
        thresholds: Mapping[str, Any] = dict(zip(others, optional, strict=True))
        least, q = thresholds.get("minPs", np.zeros(len(logits))), thresholds.get("q")
        found = {name: np.zeros(logits.shape) for name in (_LEFT, *_SORTED)} | {_CHOSEN: np.zeros(len(logits))}
        if unscaled:
            found[_LEFT][...] = -np.inf
        for at, row in enumerate(logits):
            limits = int(counts[at]), float(shares[at]), float(least[at])
            words, probabilities = _candidates(row, *limits, most, unscaled)
            found[_LEFT][at, words] = row[words]
            for name, values in zip(_SORTED, (words, probabilities), strict=True):
                found[name][at, : len(words)] = values
            if q is not None:
                with np.errstate(divide="ignore", invalid="ignore"):
                    probabilities = probabilities / (np.abs(q[at, : len(words)].astype(np.float64)) + epsilon)
            found[_CHOSEN][at] = words[np.argmax(probabilities)]
        return tuple(found[name] for name in results)

    return Library(sample, ("logits", "topK", "topP", *others), results)


def _sampler(
    name: str, dtypes: Sequence[D], inputs: Sequence[Parameter], switches: Sequence[Parameter], *outputs: Parameter
) -> Operator:
    """Return a sampler; ``inputs``, ``switches`` and ``outputs`` are what the second version has more."""
    optional = ("q", *(parameter.name for parameter in inputs))
    results = (_CHOSEN, _LEFT, *(parameter.name for parameter in outputs))
    chosen = shape_is("one for each row", _a_row, _CHOSEN)
    return Operator(
        name=name,
        summary="Sample a token from each row by top-k and top-p.",
        formula="logitsSelectIdx = argmax of softmax / (q + eps) over the topK largest, of these the first whose "
        "probabilities sum to topP",
        parameters=(
            tensor_in("logits", "(rows, words)"),
            tensor_in("topK", "the number of candidates of each row, 1 to 1024; otherwise all; INT32"),
            tensor_in("topP", "the cumulative probability of the candidates of each row; 1: all"),
            optional_in("q", "exponentially distributed numbers, in the order of the candidates; FLOAT; null: 1"),
            *inputs,
            attribute("eps", Kind.DOUBLE, "the term added to q"),
            attribute("isNeedLogits", Kind.BOOL, "whether to write logitsTopKPSelect"),
            attribute("topKGuess", Kind.INT64, "a performance hint, without effect"),
            *switches,
            tensor_out(_CHOSEN, "the selected tokens; INT64", const=True, index_of=None),
            tensor_out(_LEFT, "the logits of the candidates, otherwise -inf; FLOAT", const=True),
            *outputs,
        ),
        support=support(dtypes, A2_CLASS),
        checks=generated(
            ("logits", "topK", "topP"),
            results,
            lambda product: [(d, D.INT32, d, *(D.INT64, D.FLOAT) * (len(results) // 2)) for d in dtypes],
            dims_between(2, 2, "logits"),
            value_is(
                f"at most {_MOST_WORDS} words", lambda got: got <= _MOST_WORDS, "logits", of=lambda got: got.shape[1]
            ),
            shape_is("one for each row", _a_row, "topK", "topP", *(each for each in optional if each != "q")),
            *(only_if(null("q"), "with isNeedSampleResult", _sorted_wanted) for _ in switches[:1]),
            same_shape("q", "logits"),
            only_if(same_shape(_LEFT, "logits"), "with isNeedLogits", lambda call: bool(call["isNeedLogits"])),
            only_if(chosen, "without isNeedSampleResult", lambda call: not _sorted_wanted(call)),
            *(
                only_if(same_shape(parameter.name, "logits"), "with isNeedSampleResult", _sorted_wanted)
                for parameter in outputs
            ),
            optional=(dtype_in((D.FLOAT,), "q"), *(same_dtype(parameter.name, "logits") for parameter in inputs)),
        ),
        work=_sample_work,
    )


OPERATORS = (
    replace(
        library_operator(
            "apply_top_k_top_p",
            "out = logits, -inf below the k-th largest, and where the cumulative probability in ascending order is at "
            "most 1 - p",
            "Top-k and top-p filtering of logits.",
            (
                tensor_in("logits", "(rows, words)"),
                optional_in("p", "the cumulative probability to keep per row; null: all"),
                optional_in("k", "the maximum number of logits to keep per row; INT32; null: all"),
                tensor_out(),
            ),
            (
                present("logits"),
                rule("p or k", _neither, ACLNN_ERR_PARAM_NULLPTR),
                present("out"),
                dtype_in(floating, "logits", "p"),
                dtype_in((D.INT32,), "k"),
                dtype_in(floating, "out"),
                same_dtype("p", "logits"),
                same_dtype("out", "logits"),
                dims_between(2, 2, "logits"),
                same_shape("out", "logits"),
                dims_between(1, 1, "p", "k"),
                shape_is("one for each row", _a_row, "p", "k"),
                public_format("logits", "p", "k", "out"),
            ),
            _apply,
            dtypes=FLOATING,
            products=MODERN,
        ),
        work=_work,
    ),
    _sampler("top_k_top_p_sample", (D.FLOAT16, D.BF16), (), ()),
    _sampler(
        "top_k_top_p_sample_v2",
        FLOATING,
        (optional_in("minPs", "the minimum probability of a token relative to the maximum, per row; null: 0"),),
        (
            attribute("ksMax", Kind.INT64, "the maximum of topK, rounded up to a multiple of 8, at most 1024"),
            attribute("inputIsLogits", Kind.BOOL, "whether the input contains logits instead of probabilities"),
            attribute(
                "isNeedSampleResult",
                Kind.BOOL,
                "whether to write logitsIdx and logitsSortMasked instead of logitsSelectIdx",
            ),
        ),
        tensor_out(_SORTED[0], "the candidates in descending order, then 0; INT64", const=True, index_of=None),
        tensor_out(_SORTED[1], "the candidates' probabilities, then 0; FLOAT", const=True),
    ),
)
