"""Attention with its gradients: masks, biases, dropouts and sinks, in every layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_NULLPTR,
)
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import attention, scores
from aclnn.operators.library.creation.drawing import random_bits
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, Breaking, LibraryTests, Placed, Subject, described, torch

TRAINED = (D.FLOAT, D.FLOAT16, D.BF16)
FORWARD = {name: BY_NAME[name] for name in BY_NAME if name.startswith("flash") and "grad" not in name}
BACKWARD = {name: BY_NAME[name] for name in BY_NAME if name.startswith("flash") and "grad" in name}
#: Two samples of four heads, two of keys and values, with three queries, five keys, four and three elements.
B, N, KV, Q, K, E, V = 2, 4, 2, 3, 5, 4, 3
ENDS = {"actualSeqQLenOptional": (2, 6), "actualSeqKvLenOptional": (3, 7)}
ATTRIBUTES: Arguments = {
    **dict.fromkeys(("prefixOptional", "qStartIdxOptional", "kvStartIdxOptional"), None),
    "scaleValue": 0.5,
    "keepProb": 1.0,
    "preTokens": 65536,
    "nextTokens": 65536,
    "headNum": N,
    "innerPrecise": 0,
    "sparseMode": 1,
    "pseType": 1,
    "seed": 3,
    "offset": 4,
    "outDtype": 0,
    "softmaxOutLayout": "",
    "softmaxInLayout": None,
}


def is_packed(name: str) -> bool:
    return "var_len" in name or "unpadding" in name


def _call(name: str, d: D, packs: bool = False) -> Arguments:
    packed = packs or is_packed(name)
    query, key, value, out = (
        ((6, N, E), (7, KV, E), (7, KV, V), (6, N, V))
        if packed
        else ((B, N, Q, E), (B, KV, K, E), (B, KV, K, V), (B, N, Q, V))
    )
    statistic, bias = T(D.FLOAT, (6, N, 8) if packed else (B, N, Q, 8)), None if packed else T(d, (B, N, Q, K))
    beside_float = "grad" not in name or name.endswith("score_grad_v4")
    sink = T(D.FLOAT, (N,)) if beside_float or d != D.FLOAT else None
    call: Arguments = ATTRIBUTES | (ENDS if packed else dict.fromkeys(ENDS))
    call |= {"query": T(d, query), "value": T(d, value), "inputLayout": "TND" if packed else "BNSD"}
    call |= dict.fromkeys(("key", "keyIn"), T(d, key)) | dict.fromkeys(("dy", "attentionInOptional"), T(d, out))
    call |= dict.fromkeys(("realShiftOptional", "pseShiftOptional", "dpseOut"), bias)
    call |= {"attenMaskOptional": T(D.BOOL, (4, 4) if packed else (Q, K)), "attentionOutOut": T(d, out)}
    call |= dict.fromkeys(("sinkOptional", "sinkInOptional"), sink)
    call |= dict.fromkeys(("softmaxMaxOut", "softmaxSumOut", "softmaxMaxOptional", "softmaxSumOptional"), statistic)
    call |= {"dqOut": T(d, query), "dkOut": T(d, key), "dvOut": T(d, value), "dsinkOut": T(D.FLOAT, (N,))}
    return {p.name: call.get(p.name) for p in BY_NAME[name].parameters}


def _empty_call(name: str) -> Arguments:
    """No samples; no tokens where sequences are packed."""
    call = _call(name, D.FLOAT) | {"attenMaskOptional": None, "sparseMode": 0}
    for key, given in call.items():
        if isinstance(given, T) and given.shape[0] in (B, 6, 7):
            call[key] = given._replace(shape=(0, *given.shape[1:]))
    return call | (dict.fromkeys(ENDS, (0, 0)) if is_packed(name) else {})


def attended(
    q: Any, k: Any, v: Any, scale: float, bias: Any = None, masked: Any = None, sink: Any = None, kept: Any = None
) -> tuple[Any, Any, Any]:
    """PyTorch's largest scores, sums and attention, of float64 samples (B, N, S, D)."""
    groups = q.shape[1] // k.shape[1]
    k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
    found = scale * (q @ k.mT) + (0 if bias is None else bias)
    if masked is not None:
        found = found.masked_fill(masked, -math.inf)
    if sink is not None:
        found = torch.cat((found, sink.double()[None, :, None, None].expand(*found.shape[:3], 1)), -1)
    largest = found.amax(-1, keepdim=True).detach()
    shares = found.softmax(-1)[..., : k.shape[2]]
    shares = shares if kept is None else shares * kept
    return (
        largest.expand(*found.shape[:3], 8),
        (found - largest).exp().sum(-1, True).expand(*largest.shape[:3], 8),
        (shares @ v),
    )


def _samples(a: Mapping[str, Any], *names: str) -> list[list[Any]]:
    """The tensors' samples (1, N, S, D), of a packed call."""
    found = []
    for name in names:
        ends = (0, *a["actualSeqQLenOptional" if name == "query" else "actualSeqKvLenOptional"])
        found.append([a[name][begin:end].transpose(0, 1)[None].double() for begin, end in pairwise(ends)])
    return found


def _reference(a: Mapping[str, Any]) -> list[Any]:
    scale, mask, sink = a["scaleValue"], a["attenMaskOptional"], a.get("sinkOptional")
    if a["inputLayout"] == "TND":
        parts = []
        for q, k, v in zip(*_samples(a, "query", "key", "value"), strict=True):
            parts.append(attended(q, k, v, scale, masked=mask[: q.shape[2], : k.shape[2]], sink=sink))
        largest, total, out = (torch.cat([part[at][0] for part in parts], 1) for at in range(3))
        return [largest.reshape(6, N, 8), total.reshape(6, N, 8), out.transpose(0, 1)]
    bias = scale * a["realShiftOptional"].double()
    tensors = (a[name].double() for name in ("query", "key", "value"))
    return [*attended(*tensors, scale, bias, mask, sink)]


def _unmasked_first(operator: str, name: str, array: Any) -> Any:
    if name == "attenMaskOptional":
        array[..., 0] = False
    return array


def _packed_with(operator: Any, change: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**_call(operator.name, D.FLOAT, packs=True), **change}


def _parameters(operator: Any) -> list[str]:
    return [p.name for p in operator.parameters]


def _halves(operator: Any) -> dict[str, T]:
    """Queries and keys of 16 elements a head, of which rotary parts have up to as many, with their gradients."""
    query, key = T(D.BF16, (6, N, 16)), T(D.BF16, (7, KV, 16))
    halves = dict.fromkeys(("query", "dqOut"), query) | dict.fromkeys(("key", "keyIn", "dkOut"), key)
    return {name: value for name, value in halves.items() if name in _parameters(operator)}


def _with_ropes(operator: Any, change: Mapping[str, Any]) -> dict[str, Any]:
    query, key = T(D.BF16, (6, N, 8)), T(D.BF16, (7, KV, 8))
    ropes = dict.fromkeys(("queryRope", "dqRopeOut"), query)
    ropes |= dict.fromkeys(("keyRope", "keyInRope", "dkRopeOut"), key)
    known = {name: value for name, value in ropes.items() if name in _parameters(operator)}
    return {**_halves(operator), **known, **change}


BREAKS: Mapping[str, Breaking] = {
    "no private format": lambda o, name: (
        Break(_with_ropes(o, {name: T(D.BF16, (6, N, 8), Format.FORMAT_FRACTAL_NZ)}), "ACL_FORMAT_ND", D.BF16)
        if name.endswith("Rope")
        else Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND")
    ),
    "data type": lambda o, name: Break(
        {name: T(D.UINT8 if name == "query" else D.INT32, (Q, K))}
        if name in ("attenMaskOptional", "dropMaskOptional", "query", "sinkInOptional")
        else dtype(D.INT32, name),
        "data type",
    ),
    "same data type as query": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "data type of the bias": lambda o, name: Break({name: T(D.FLOAT16, (B, N, Q, K))}, "ACL_FLOAT"),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "dimensions of the layout": lambda o, name: Break(
        {name: "BND"} if name == "inputLayout" else shape((2, 3), name),
        "dimensions" if name != "inputLayout" else "TND" if "actualSeqQLenOptional" in _parameters(o) else "BSH",
    ),
    "heads": lambda o, name: Break(
        {name: 3} if name == "headNum" else shape((6, 3, 9) if is_packed(o.name) else (B, 3, K, 9), name),
        "heads of" if name != "headNum" else "4",
    ),
    "as many": lambda o, name: Break(
        shape((5, KV, V) if is_packed(o.name) else (B, KV, 4, V), name)
        if name == "value"
        else shape((3, KV, K, E), name),
        "to be",
    ),
    "shape … (of the attention)": lambda o, name: Break(shape((1, 2, 3), name), "shape ["),
    "shape of a statistic": lambda o, name: Break(shape((1, 2, 3), name), "8]"),
    "same shape as query": lambda o, name: Break(shape((1, 2, 3), name), "shape ["),
    "same shape as keyIn": lambda o, name: Break(shape((1, 2, 3), name), "shape ["),
    "same shape as value": lambda o, name: Break(shape((1, 2, 3), name), "shape ["),
    "ends of sequences": lambda o, name: Break(_packed_with(o, {name: (2, 9)}), "ends up to"),
    "known mode": lambda o, name: Break(
        {"sparseMode": 6 if name == "prefixOptional" else 9}, "numbers" if name == "prefixOptional" else "0, 1"
    ),
    "shape of the mask": lambda o, name: Break({name: T(D.BOOL, (2, 2))}, "shape ["),
    "not computed": lambda o, name: Break({name: T(D.FLOAT, (2, 2))}, "none"),
    "slopes of packed sequences": lambda o, name: Break(_packed_with(o, {name: T(D.FLOAT, (B, N, Q, K))}), "slopes"),
    "slopes": lambda o, name: Break({name: None, "pseType": 2}, "slopes"),
    "allowed value": lambda o, name: Break({name: "TND"}, "same_as_input"),
    "of 16 bits only": lambda o, name: Break({name: T(D.FLOAT, (N,))}, "none with query of ACL_FLOAT"),
    "all or none": lambda o, name: Break(_with_ropes(o, {name: None}), "a tensor with", D.BF16),
    "of one data type": lambda o, name: Break(
        _with_ropes(o, {each: value._replace(dtype=D.FLOAT16) for each, value in _halves(o).items()})
        if name == "query"
        else _with_ropes(o, {name: T(D.FLOAT16, (6, N, 8))}),
        "ACL_BF16",
        D.FLOAT16 if name == "query" else D.BF16,
    ),
    "elements of a rotary part": lambda o, name: Break(
        _with_ropes(o, {name: T(D.BF16, (6, N, 24))}), "a multiple of 8 elements up to 16", D.BF16
    ),
    "another mode with queryRope": lambda o, name: Break(
        _with_ropes(o, {name: 6, "prefixOptional": (1, 1)}), "another mode", D.BF16
    ),
    "masked": lambda o, name: Break(_with_ropes(o, {name: None}), "a mask", D.BF16),
    "none with rotary parts": lambda o, name: Break(
        _with_ropes(o, {name: T(D.BF16 if name != "dropMaskOptional" else D.UINT8, (N,))}), "none with", D.BF16
    ),
    "1 with queryRope": lambda o, name: Break(_with_ropes(o, {name: 0.5}), "1 with", D.BF16),
    "shape of a rotary part": lambda o, name: Break(_with_ropes(o, {name: T(D.BF16, (5, N, 8))}), "8] (with", D.BF16),
    "shape of its gradient": lambda o, name: Break(_with_ropes(o, {name: T(D.BF16, (5, N, 8))}), "8] (as", D.BF16),
    "shape of the bias": lambda o, name: Break(
        {name: T(D.FLOAT, (7,))} | ({"pseType": 2} if "pseType" in _parameters(o) else {}), "shape ["
    ),
    "dropout": lambda o, name: Break(
        {"keepProb": 0.5 if name == "dropMaskOptional" else 0.0}
        | ({name: T(D.UINT8, (3,))} if name == "dropMaskOptional" else {}),
        "a bit a score" if name == "dropMaskOptional" else "more than 0",
    ),
    "data type of a gradient": lambda o, name: Break({name: T(D.INT32, (1, 2))}, "ACL_FLOAT"),
    "shape of a gradient": lambda o, name: Break(
        {name: T(D.FLOAT if name == "dsinkOut" else D.FLOAT16, (1, 2))}, "shape [", D.FLOAT16
    ),
    "a number a head": lambda o, name: Break({name: T(D.FLOAT, (3,))}, "[4]", D.FLOAT16),
}


#: Answered with one code by the forward functions, with another by those of gradients.
OF_ROPES = (
    *("of one data type", "elements of a rotary part", "another mode with queryRope", "none with rotary parts"),
    *("1 with queryRope",),
)
TILING = (
    *("shape of a rotary part", "as many", "shape … (of the attention)", "shape of a statistic", "ends of sequences"),
    *("known mode", "shape of the mask", "shape of the bias", "dropout", "a number a head", "shape of a gradient"),
)
COMMON = (
    dict.fromkeys(TILING, ACLNN_ERR_INNER_TILING_ERROR)
    | dict.fromkeys(("not computed", "slopes of packed sequences"), ACLNN_ERR_INNER_NULLPTR)
    | dict.fromkeys(("all or none", "masked"), ACLNN_ERR_PARAM_NULLPTR)
)


class TestAttention(LibraryTests):
    subject = Subject(
        tuple(FORWARD.values()),
        calls={name: lambda d, name=name: _call(name, d) for name in FORWARD},
        references=dict.fromkeys(FORWARD, _reference),
        default=TRAINED,
        empty={name: _empty_call(name) for name in FORWARD},
        breaks=BREAKS,
        numbers=_unmasked_first,
        left=("softmaxOutOut",),
        codes=COMMON | dict.fromkeys(OF_ROPES, ACLNN_ERR_PARAM_NULLPTR),
        terms=8,
    )


class TestGradients(LibraryTests):
    subject = Subject(
        tuple(BACKWARD.values()),
        references={},
        calls={name: lambda d, name=name: _call(name, d) for name in BACKWARD},
        default=TRAINED,
        empty={name: _empty_call(name) for name in BACKWARD},
        breaks=BREAKS,
        elsewhere=[*BACKWARD],
        codes=COMMON | {"slopes": ACLNN_ERR_INNER_TILING_ERROR},
    )


#: Where the dimensions B, N, S and D of a tensor are in a layout.
LAYOUTS = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "SBH": (2, 0, 1, 3)}


def laid_out(x: Any, layout: str) -> Any:
    """A tensor (B, N, S, D) in a layout."""
    moved = np.ascontiguousarray(x.transpose(LAYOUTS[layout]))
    return moved.reshape(*moved.shape[:2], -1) if "H" in layout else moved


def computed(name: str, tensors: Mapping[str, Any], **attributes: Any) -> dict[str, Any]:
    """Run a function on arrays, those named among its outputs being overwritten; return the arrays by name."""
    operator = BY_NAME[name]
    placed = {key: Placed(array, "contiguous") for key, array in tensors.items() if array is not None}
    arguments = {p.name: (ATTRIBUTES | dict.fromkeys(ENDS)).get(p.name) for p in operator.parameters}
    arguments |= {key: each.tensor for key, each in placed.items()} | attributes
    product = Product.ATLAS_A2 if Product.ATLAS_A2 in operator.support else Product.ASCEND_950
    prepare(operator, arguments, product).run()
    assert all(each.untouched_outside() for each in placed.values())
    return {key: each.view for key, each in placed.items()}


def both(
    q: Any, k: Any, v: Any, dy: Any, layout: str = "BNSD", version: str = "_v4", further: Any = None, **attributes: Any
) -> dict[str, Any]:
    """The results of the forward function, and of the gradient's with what it gave."""
    further = further or {}
    poison = np.full((q.shape[0], q.shape[1], q.shape[2], 8), np.nan, np.float32)
    attributes |= {"inputLayout": layout, "headNum": q.shape[1]}
    query, key, value, out = (laid_out(each, layout) for each in (q, k, v, dy))
    names = {
        "bias": "realShiftOptional",
        "mask": "attenMaskOptional",
        "sink": "sinkOptional",
        "kept": "dropMaskOptional",
    }
    forward = computed(
        f"flash_attention_score{version}",
        {"query": query, "key": key, "value": value, "attentionOutOut": np.full_like(out, np.nan)}
        | {"softmaxMaxOut": poison, "softmaxSumOut": poison}
        | {names[word]: array for word, array in further.items()},
        **attributes,
    )
    names |= {"bias": "pseShiftOptional", "sink": "sinkInOptional"}
    given = {"query": query, "keyIn": key, "value": value, "dy": out}
    given |= {"softmaxMaxOptional": forward["softmaxMaxOut"], "softmaxSumOptional": forward["softmaxSumOut"]}
    given |= {"attentionInOptional": forward["attentionOutOut"]}
    given |= {name: np.full_like(x, np.nan) for name, x in (("dqOut", query), ("dkOut", key), ("dvOut", value))}
    if "bias" in further and further["bias"].ndim == 4:
        given["dpseOut"] = np.full_like(further["bias"], np.nan)
    if "sink" in further:
        given["dsinkOut"] = np.full_like(further["sink"], np.nan)
    backward = computed(
        f"flash_attention_score_grad{version}",
        given | {names[word]: array for word, array in further.items()},
        **attributes,
    )
    return forward | backward


def _arrays(seed: int = 0, queries: int = Q, keys: int = K, kv: int = KV, d: Any = np.float32) -> list[Any]:
    random = np.random.default_rng(seed)
    shapes = (B, N, queries, E), (B, kv, keys, E), (B, kv, keys, V), (B, N, queries, V)
    return [random.normal(size=each).astype(d) for each in shapes]


def _leaf(x: Any) -> Any:
    return torch.tensor(np.asarray(x, np.float64), requires_grad=True)


def assert_as_pytorch(
    found: Mapping[str, Any],
    given: list[Any],
    scale: float,
    layout: str = "BNSD",
    add_first: bool = True,
    units: float = 2.0**-20,
    **further: Any,
) -> None:
    """Compare results with the derivatives of PyTorch's attention in float64."""
    q, k, v = (_leaf(each) for each in given[:3])
    bias, sink = (None if further.get(word) is None else _leaf(further[word]) for word in ("bias", "sink"))
    masked, kept = (None if further.get(word) is None else torch.tensor(further[word]) for word in ("masked", "kept"))
    added = bias * scale if add_first and bias is not None else bias
    largest, total, out = attended(q, k, v, scale, added, masked, sink, kept)
    out.backward(torch.tensor(given[3].astype(np.float64)))
    wanted = {"attentionOutOut": out, "dqOut": q.grad, "dkOut": k.grad, "dvOut": v.grad}
    for name, value in wanted.items():
        expected = laid_out(value.detach().numpy(), layout)
        np.testing.assert_allclose(found[name].astype(float), expected, rtol=units, atol=8 * units, err_msg=name)
    for name, value in (("softmaxMaxOut", largest), ("softmaxSumOut", total)):
        np.testing.assert_allclose(found[name], value.detach().numpy(), rtol=2.0**-20, atol=2.0**-20, err_msg=name)
    for name, leaf in (("dpseOut", bias), ("dsinkOut", sink)):
        if leaf is not None and name in found:
            np.testing.assert_allclose(found[name], leaf.grad.numpy(), rtol=units, atol=8 * units, err_msg=name)


@pytest.mark.parametrize("version", ["", "_v2", "_v3", "_v4"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_match_pytorch(version: str, layout: str) -> None:
    arrays = _arrays()
    assert_as_pytorch(both(*arrays, layout, version, scaleValue=0.3, sparseMode=0), arrays, 0.3, layout)


@pytest.mark.parametrize("d", [np.float16, D.BF16.numpy])
def test_sixteen_bits_are_rounded_once(d: Any) -> None:
    arrays = _arrays(1, d=d)
    digits = 2.0**-9 if d == np.float16 else 2.0**-6
    assert_as_pytorch(both(*arrays, scaleValue=0.3, sparseMode=0), arrays, 0.3, units=digits)


def _rule(mode: int, queries: int, keys: int, before: int, after: int, prefix: int) -> Any:
    """Mask the scores of a mode, element by element."""
    masked = np.zeros((queries, keys), bool)
    for i in range(queries):
        for j in range(keys):
            last = i + keys - queries
            masked[i, j] = {
                2: j > i,
                3: j > last,
                4: not last - before <= j <= last + after,
                6: j > last and j >= prefix,
            }[mode]
    return masked


@pytest.mark.parametrize(("mode", "queries", "keys"), [(m, q, k) for m in (2, 3, 4, 6) for q, k in ((4, 6), (5, 5))])
def test_modes_mask_by_their_own_rules(mode: int, queries: int, keys: int) -> None:
    arrays = _arrays(2, queries, keys)
    mask = np.ones((3072 if mode == 6 else 2048, 2048), bool)
    found = both(
        *arrays,
        version="_v2",
        further={"mask": mask},
        scaleValue=0.5,
        sparseMode=mode,
        preTokens=2,
        nextTokens=1,
        prefixOptional=(3, 4) if mode == 6 else None,
    )
    masked = np.stack([_rule(mode, queries, keys, 2, 1, prefix) for prefix in (3, 4)])[:, None]
    assert_as_pytorch(found, arrays, 0.5, masked=masked)


@pytest.mark.parametrize("dims", [(Q, K), (1, 1, Q, K), (B, 1, Q, K), (B, N, Q, K)])
@pytest.mark.parametrize("mode", [0, 1, 5])
@pytest.mark.parametrize("d", [np.uint8, np.bool_])
def test_masks_of_every_shape_are_read(dims: tuple[int, ...], mode: int, d: Any) -> None:
    arrays = _arrays(3)
    mask = (np.random.default_rng(3).random(dims) < 0.4).astype(d)
    mask[..., 1] = 0
    found = both(*arrays, further={"mask": mask}, scaleValue=0.5, sparseMode=mode)
    assert_as_pytorch(found, arrays, 0.5, masked=np.broadcast_to(mask != 0, (B, N, Q, K)))


def test_a_band_lies_within_a_given_mask() -> None:
    arrays, mask = _arrays(4), np.zeros((Q, K), bool)
    mask[:, 4] = True
    found = both(*arrays, further={"mask": mask}, scaleValue=0.5, sparseMode=0, preTokens=1, nextTokens=1)
    i, j = np.indices((Q, K))
    assert_as_pytorch(found, arrays, 0.5, masked=mask | (j - i > 1) | (i - j > 1))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("dims", [(B, N, Q, K), (1, N, Q, K), (B, N, 1, K), (1, N, 1, K)])
def test_biases_have_gradients(kind: int, dims: tuple[int, ...]) -> None:
    arrays, bias = _arrays(5), np.random.default_rng(5).normal(size=dims).astype(np.float32)
    found = both(*arrays, further={"bias": bias}, scaleValue=0.5, sparseMode=0, pseType=kind)
    assert "dpseOut" in found
    assert_as_pytorch(found, arrays, 0.5, add_first=kind == 1, bias=bias)


@pytest.mark.parametrize("kind", [2, 3])
@pytest.mark.parametrize("dims", [(N,), (B, N)])
def test_slopes_are_times_distances(kind: int, dims: tuple[int, ...]) -> None:
    arrays, slopes = _arrays(6, keys=Q), np.random.default_rng(6).random(dims).astype(np.float32)
    found = both(
        *arrays,
        further={"bias": slopes},
        scaleValue=0.5,
        sparseMode=0,
        pseType=kind,
        qStartIdxOptional=(2,),
        kvStartIdxOptional=(1,),
    )
    i, j = np.indices((Q, Q))
    far = np.abs((j + 1.0) - (i + 2.0))
    bias = -np.broadcast_to(slopes, (B, N))[..., None, None] * (np.sqrt(far) if kind == 3 else far)
    assert_as_pytorch(found, arrays, 0.5, add_first=False, bias=bias)


@pytest.mark.parametrize("version", ["_v3", "_v4"])
def test_a_sink_takes_part_and_adds_nothing(version: str) -> None:
    arrays, sink = _arrays(7, d=np.float16), np.array([-1, 0, 1, 5], np.float32)
    found = both(*arrays, version=version, further={"sink": sink}, scaleValue=0.5, sparseMode=0)
    assert "dsinkOut" in found
    assert_as_pytorch(found, arrays, 0.5, units=2.0**-9, sink=sink)


def test_dropouts_take_bits_in_order_of_heads_queries_and_keys() -> None:
    arrays = _arrays(8, kv=1)
    bits = np.random.default_rng(8).integers(0, 256, -(-B * N * Q * K // 8)).astype(np.uint8)
    kept = np.unpackbits(bits, bitorder="little")[: B * N * Q * K].reshape(B, N, Q, K) / 0.7
    for layout in LAYOUTS:
        found = both(*arrays, layout, "", further={"kept": bits}, scaleValue=0.5, sparseMode=0, keepProb=0.7)
        assert_as_pytorch(found, arrays, 0.5, layout, kept=kept)


def test_seeds_choose_the_bits_of_both_functions() -> None:
    arrays = _arrays(9)
    source = np.random.Generator(np.random.Philox(key=np.array([11, 12], np.uint64)))
    bits = random_bits(source, -(-B * N * Q * K // 8), 1 - 0.7)
    kept = np.unpackbits(bits, bitorder="little")[: B * N * Q * K].reshape(B, N, Q, K) / 0.7
    found = both(*arrays, scaleValue=0.5, sparseMode=0, keepProb=0.7, seed=11, offset=12)
    assert_as_pytorch(found, arrays, 0.5, kept=kept)


@pytest.mark.parametrize("block", [1, N * K, 2 * N * K])
def test_computing_in_blocks_of_rows_changes_nothing(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    arrays, bias = _arrays(10), np.random.default_rng(10).normal(size=(1, N, Q, K)).astype(np.float32)
    mask, bits = np.zeros((2048, 2048), bool), np.full(-(-B * N * Q * K // 8), 0b10110111, np.uint8)
    given = {"bias": bias, "mask": mask, "kept": bits}
    attributes = {"scaleValue": 0.5, "sparseMode": 3, "keepProb": 0.75}
    whole = both(*arrays, further=given, **attributes)
    monkeypatch.setattr(scores, "_BLOCK", block)
    for name, value in both(*arrays, further=given, **attributes).items():
        np.testing.assert_allclose(value, whole[name], rtol=2.0**-20, atol=2.0**-20, err_msg=name)


def test_a_fully_masked_row_gives_zeros() -> None:
    arrays, mask = _arrays(11), np.zeros((Q, K), bool)
    mask[1] = True
    found = both(*arrays, further={"mask": mask}, scaleValue=0.5, sparseMode=1)
    assert not found["attentionOutOut"][:, :, 1].any()
    assert not found["dqOut"][:, :, 1].any()
    assert all(np.isfinite(found[name]).all() for name in ("attentionOutOut", "dqOut", "dkOut", "dvOut"))
    assert np.isneginf(found["softmaxMaxOut"][:, :, 1]).all()
    assert not found["softmaxSumOut"][:, :, 1].any()


def test_attention_without_keys_is_zero() -> None:
    arrays = _arrays(11, keys=0)
    found = both(*arrays, scaleValue=0.5, sparseMode=0)
    assert not any(found[name].any() for name in ("attentionOutOut", "softmaxSumOut", "dqOut"))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_stay_in_their_row(value: float) -> None:
    arrays = _arrays(12)
    exact = both(*arrays, scaleValue=0.5, sparseMode=0)
    arrays[0][1, 2, 0, 0] = value
    found = both(*arrays, scaleValue=0.5, sparseMode=0)
    assert np.isnan(found["attentionOutOut"][1, 2, 0]).all()
    for name in ("attentionOutOut", "dqOut"):
        same = found[name] == exact[name]
        same[1, 2, 0] = True
        assert same.all()


def _packed(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.normal(size=each).astype(np.float32) for each in ((7, N, E), (9, KV, E), (9, KV, V), (7, N, V))]


VAR_LEN = "var_len_score", "unpadding_score_grad"
OF_ALL = "score", "score_grad"


@pytest.mark.parametrize(
    ("pair", "version", "text"),
    [
        *((VAR_LEN, version, None) for version in ("", "_v2", "_v3")),
        *((pair, "_v4", text) for pair in (VAR_LEN, OF_ALL) for text in ("", "same_as_input")),
        *((VAR_LEN, "_v5", text) for text in ("", "same_as_input")),
    ],
)
@pytest.mark.parametrize("mode", [0, 3, 7, 8])
def test_packed_sequences_give_the_results_of_samples(
    pair: tuple[str, str], version: str, text: str | None, mode: int
) -> None:
    """Sequences of 2, 0 and 4 queries and of 3, 1 and 4 keys; the last query and key belong to none."""
    arrays = _packed(13)
    queries, keys, names = (2, 2, 6, 0), (3, 4, 8, 0), ("query", "key", "value")
    forward, backward = (f"flash_attention_{of}{version}" for of in pair)
    attributes: dict[str, Any] = {"inputLayout": "TND", "sparseMode": mode, "preTokens": 1, "nextTokens": 1}
    attributes |= {"actualSeqQLenOptional": queries, "actualSeqKvLenOptional": keys}
    attributes |= {} if text is None else {"softmaxOutLayout": text}
    mask = None if mode == 0 else np.zeros((2048, 2048), np.uint8)
    statistic = np.full((7, N, 8), np.nan, np.float32)
    found = computed(
        forward,
        dict(zip(names, arrays, strict=False))
        | {"attenMaskOptional": mask, "softmaxMaxOut": statistic, "softmaxSumOut": statistic}
        | {"attentionOutOut": np.full_like(arrays[3], np.nan)},
        **attributes,
    )
    attributes |= {} if text is None else {"softmaxInLayout": attributes.pop("softmaxOutLayout")}
    found |= computed(
        backward,
        dict(zip(("query", "keyIn", "value", "dy"), arrays, strict=True))
        | {"attenMaskOptional": mask, "attentionInOptional": found["attentionOutOut"]}
        | {"softmaxMaxOptional": found["softmaxMaxOut"], "softmaxSumOptional": found["softmaxSumOut"]}
        | {name: np.full_like(x, np.nan) for name, x in zip(("dqOut", "dkOut", "dvOut"), arrays, strict=False)},
        **attributes,
    )
    statistics = {
        name: found[name] if text else found[name].reshape(N, 7, 8).swapaxes(0, 1)
        for name in ("softmaxMaxOut", "softmaxSumOut")
    }
    for at, ((begin, end), (first, last)) in enumerate(
        zip(pairwise((0, *queries[:3])), pairwise((0, *keys[:3])), strict=True)
    ):
        if begin == end:
            continue
        parts = [
            x[one:other].swapaxes(0, 1)[None]
            for x, one, other in zip(arrays, (begin, first, first, begin), (end, last, last, end), strict=True)
        ]
        own = 4 if (mode, at) in ((7, 2), (8, 0)) else 2 if mode == 8 else 3
        masked = None if mode == 0 else _rule(own, end - begin, last - first, 1, 1, 0)
        of_part = {name: found[name][begin:end].swapaxes(0, 1)[None] for name in ("attentionOutOut", "dqOut")}
        of_part |= {name: found[name][first:last].swapaxes(0, 1)[None] for name in ("dkOut", "dvOut")}
        of_part |= {name: x[begin:end].swapaxes(0, 1)[None] for name, x in statistics.items()}
        assert_as_pytorch(of_part, parts, 0.5, masked=masked)
    assert not any(found[name][-1:].any() for name in ("attentionOutOut", "dqOut", "dkOut", "dvOut"))


@pytest.mark.parametrize("version", ["_v3", "_v5"])
def test_rotary_parts_extend_heads(version: str) -> None:
    """Sequences of 3 and 4 queries and of 4 and 5 keys, in BF16, with a sink where a function has one."""
    random, ends = np.random.default_rng(15), {"actualSeqQLenOptional": (3, 7), "actualSeqKvLenOptional": (4, 9)}
    shapes = {"query": (7, N, 16), "queryRope": (7, N, 8), "key": (9, KV, 16), "keyRope": (9, KV, 8)}
    shapes |= {"value": (9, KV, V), "dy": (7, N, V)}
    arrays = {name: random.normal(size=of).astype(D.BF16.numpy) for name, of in shapes.items()}
    mask = {"attenMaskOptional": np.triu(np.ones((4, 5), bool), 2)}
    sink = np.array([-1, 0, 1, 2], np.float32) if version == "_v5" else None
    attributes = ends | {"inputLayout": "TND", "sparseMode": 0, "scaleValue": 0.3}
    given = {name: array for name, array in arrays.items() if name != "dy"} | mask
    given |= dict.fromkeys(("softmaxMaxOut", "softmaxSumOut"), np.zeros((7, N, 8), np.float32))
    given |= {"attentionOutOut": np.zeros_like(arrays["dy"]), "sinkOptional": sink}
    forward = computed(f"flash_attention_var_len_score{version}", given, **attributes)
    spelt = {"key": "keyIn", "keyRope": "keyInRope"}
    given = {spelt.get(name, name): array for name, array in arrays.items()} | mask | {"sinkInOptional": sink}
    given |= {"softmaxMaxOptional": forward["softmaxMaxOut"], "softmaxSumOptional": forward["softmaxSumOut"]}
    given |= {"attentionInOptional": forward["attentionOutOut"]}
    outs = {"dqOut": "query", "dqRopeOut": "queryRope", "dkOut": "key", "dkRopeOut": "keyRope", "dvOut": "value"}
    given |= {name: np.zeros_like(arrays[of]) for name, of in outs.items()}
    given |= {"dsinkOut": None if sink is None else np.zeros_like(sink)}
    found = computed(f"flash_attention_unpadding_score_grad{version}", given, **attributes)
    leaves = {name: _leaf(array) for name, array in arrays.items()}
    q, k = (torch.cat((leaves[name], leaves[f"{name}Rope"]), -1) for name in ("query", "key"))
    of_sink = None if sink is None else _leaf(sink)
    parts = []
    for rows, columns in ((range(3), range(4)), (range(3, 7), range(4, 9))):
        own = (x[[*at]].transpose(0, 1)[None] for x, at in ((q, rows), (k, columns), (leaves["value"], columns)))
        masked = torch.tensor(mask["attenMaskOptional"])[: len(rows), : len(columns)]
        parts.append(attended(*own, 0.3, masked=masked, sink=of_sink)[2][0].transpose(0, 1))
    out = torch.cat(parts)
    out.backward(leaves["dy"].detach())
    expected = {"attentionOutOut": out.detach()} | {name: leaves[of].grad for name, of in outs.items()}
    expected |= {} if of_sink is None else {"dsinkOut": of_sink.grad}
    for name, value in expected.items():
        np.testing.assert_allclose((forward | found)[name].astype(float), value, 2.0**-6, 2.0**-4, err_msg=name)


def test_the_documents_example_of_ones_is_reproduced() -> None:
    """The documents' example: 256 queries and keys of one head of 128 ones, in the layout SBH."""
    ones, eight = np.ones((1, 1, 256, 128), np.float32), np.float32(0.088388) * 128
    found = both(
        ones,
        ones,
        ones,
        ones,
        "SBH",
        further={"mask": np.zeros((256, 256), np.uint8)},
        scaleValue=0.088388,
        sparseMode=0,
    )
    np.testing.assert_allclose(found["attentionOutOut"], 1, rtol=2.0**-20)
    np.testing.assert_allclose(found["softmaxMaxOut"], eight, rtol=2.0**-20)
    np.testing.assert_allclose(found["softmaxSumOut"], 256, rtol=2.0**-20)


@pytest.mark.parametrize("mode", range(1, 7))
def test_a_mode_without_a_mask_masks_nothing(mode: int) -> None:
    arrays = _arrays(14)
    found = both(*arrays, version="", scaleValue=0.5, sparseMode=mode, preTokens=1, nextTokens=1)
    assert_as_pytorch(found, arrays, 0.5)


@pytest.mark.parametrize("operator", attention.OPERATORS, ids=lambda operator: operator.name)
def test_empty_outputs_are_accepted_with_any_arguments(operator: Operator) -> None:
    """Whatever the other arguments are."""
    call = _empty_call(operator.name) | {"headNum": 0, "attenMaskOptional": T(D.INT64, (3,))}
    product = Product.ATLAS_A2 if Product.ATLAS_A2 in operator.support else Product.ASCEND_950
    prepare(operator, described(call), product).run()
