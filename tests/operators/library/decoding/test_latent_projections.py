"""Queries, keys and rotary parts of latent attention, compared with PyTorch's products in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Operator
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_INNER_TILING_ERROR, AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.decoding import latent_projections
from tests.cases.table import INVALID, NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

OLD, NAME = "mla_prolog_v2_weight_nz", "mla_prolog_v3_weight_nz"
NZ = Format.FORMAT_FRACTAL_NZ
WEIGHTS = ("weightDq", "weightUqQr", "weightDkvKr")
SAMPLES, TOKENS, WIDTH, HEADS, PAGES, PAGE = 2, 3, 1024, 2, 3, 16
INDEX = np.array([[40, 3, 17], [0, 47, 16]])
SCALES = {
    "dequantScaleXOptional": (SAMPLES * TOKENS, 1),
    "dequantScaleWDqOptional": (1, 1536),
    "dequantScaleWUqQrOptional": (1, HEADS * 192),
    "dequantScaleWDkvKrOptional": (1, 576),
}
MODES = ("weightQuantMode", "kvCacheQuantMode", "queryQuantMode", "ckvkrRepoMode", "quantScaleRepoMode")


def _call(d: D) -> Arguments:
    return {
        "tokenX": T(d, (SAMPLES, TOKENS, WIDTH)),
        "weightDq": T(d, (WIDTH, 1536), NZ),
        "weightUqQr": T(d, (1536, HEADS * 192), NZ),
        "weightUk": T(d, (HEADS, 128, 512)),
        "weightDkvKr": T(d, (WIDTH, 576), NZ),
        "rmsnormGammaCq": T(d, (1536,)),
        "rmsnormGammaCkv": T(d, (512,)),
        "ropeSin": T(d, (SAMPLES, TOKENS, 64)),
        "ropeCos": T(d, (SAMPLES, TOKENS, 64)),
        "kvCacheRef": T(d, (PAGES, PAGE, 1, 512)),
        "krCacheRef": T(d, (PAGES, PAGE, 1, 64)),
        "cacheIndexOptional": T(D.INT64, INDEX.shape),
        **dict.fromkeys(SCALES),
        **dict.fromkeys(("quantScaleCkvOptional", "quantScaleCkrOptional", "smoothScalesCqOptional")),
        "actualSeqLenOptional": None,
        "kNopeClipAlphaOptional": None,
        "rmsnormEpsilonCq": 1e-5,
        "rmsnormEpsilonCkv": 1e-6,
        "cacheModeOptional": "PA_BSND",
        **dict.fromkeys(MODES, 0),
        "tileSize": 128,
        "qcQrScale": 1.5,
        "kcScale": 0.5,
        "queryOut": T(d, (SAMPLES, TOKENS, HEADS, 512)),
        "queryRopeOut": T(d, (SAMPLES, TOKENS, HEADS, 64)),
        "dequantScaleQNopeOutOptional": None,
        "queryNormOutOptional": T(d, (SAMPLES, TOKENS, 1536)),
        "dequantScaleQNormOutOptional": None,
    }


def _old_call(d: D) -> Arguments:
    """Return a valid call of the second function, which takes the modes from data types."""
    taken = {parameter.name for parameter in BY_NAME[OLD].parameters}
    call = _call(d)
    return {name: value for name, value in call.items() if name in taken} | {"cacheIndex": call["cacheIndexOptional"]}


def _norm(x: Any, gamma: Any, epsilon: float) -> Any:
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * gamma


def _rope(x: Any, sin: Any, cos: Any) -> Any:
    """Return pairs turned as complex numbers whose real parts come first, with angles of their own for both parts."""
    real, imaginary = x[..., ::2], x[..., 1::2]
    return torch.cat(
        (
            real * cos[..., :32] - imaginary * sin[..., :32],
            imaginary * cos[..., 32:] + real * sin[..., 32:],
        ),
        -1,
    )


def _projected(a: Mapping[str, Any]) -> list[Any]:
    """Return both caches, the query, its rotary part and the normalized latent query, of tensors without INT8."""
    x, sin, cos = (wide(a[name]).flatten(0, -2) for name in ("tokenX", "ropeSin", "ropeCos"))
    latent = a["qcQrScale"] * _norm(x @ wide(a["weightDq"]), wide(a["rmsnormGammaCq"]), 1e-5)
    heads = (latent @ wide(a["weightUqQr"])).unflatten(-1, (HEADS, 192))
    query = torch.stack([heads[:, at, :128] @ wide(a["weightUk"])[at] for at in range(HEADS)], 1)
    both = x @ wide(a["weightDkvKr"])
    keys = a["kcScale"] * _norm(both[:, :512], wide(a["rmsnormGammaCkv"]), 1e-6)
    found = keys, _rope(both[:, 512:], sin, cos)
    caches = [wide(a[name]).clone() for name in ("kvCacheRef", "krCacheRef")]
    for cache, rows in zip(caches, found, strict=True):
        for row, slot in zip(rows, INDEX.reshape(-1).tolist(), strict=True):
            cache[slot // PAGE, slot % PAGE, 0] = row
    shape = a["tokenX"].shape[:-1]
    return [
        *caches,
        *(
            each.reshape(*shape, *each.shape[1:])
            for each in (query, _rope(heads[..., 128:], sin[:, None], cos[:, None]), latent)
        ),
    ]


def numbers(operator: str, name: str, array: Array) -> Array:
    if name.startswith("cacheIndex"):
        return INDEX
    return array / 32 if name.startswith("weight") else array / 4


def _modes(o: Operator, name: str) -> Break:
    return Break({name: 3}, "of [0, 0, 0, 0, 0]")


BREAKS: Mapping[str, Breaking] = {
    "kernel of the product": lambda o, name: Break({}, "with a kernel", product=Product.ATLAS_TRAINING),
    "data types that go together": lambda o, name: Break(dtype(D.FLOAT16, name), "data type ACL_"),
    "format that counts as ND": lambda o, name: Break({name: {"format": NZ}}, "ACL_FORMAT_ND"),
    "format ACL_FORMAT_FRACTAL_NZ": lambda o, name: Break(
        {name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_FRACTAL_NZ"
    ),
    "data type": lambda o, name: Break({name: T(D.FLOAT16, (1,))}, "data type ACL_"),
    "modes with a kernel": _modes,
    "data types of the modes": lambda o, name: Break({"weightQuantMode": 2}, "ACL_INT8 with these modes"),
    "scales of the modes": lambda o, name: Break(
        {"weightQuantMode": 1} | dtype(D.INT8, "weightUqQr"), "with these modes"
    ),
    "allowed value": lambda o, name: Break({name: "PA"}, "'PA_BSND'"),
    "2 to 3 dimensions": lambda o, name: Break(shape((WIDTH,), name), "2 to 3"),
    "3 dimensions": lambda o, name: Break(shape((HEADS, 128), name), "3 dimensions"),
    "sizes with a kernel": lambda o, name: Break(shape((SAMPLES, TOKENS, 512), name), "1024, 2048"),
    "shape of the sizes": lambda o, name: _misfit(o, name),
    "a scale for each token": lambda o, name: Break({name: T(D.FLOAT, (7, 1))}, "[6, 1]"),
    "layout of the mode": lambda o, name: Break({"cacheModeOptional": "TND"}, "2 dimensions with TND"),
    "shape of a cache": lambda o, name: Break(shape((PAGES, 8, 1, 512), name), "a multiple of 16"),
    "indices of the mode": lambda o, name: Break(shape((3, 2), name), "[2, 3]"),
}
EARLY = ("data types that go together", "format that counts as ND", "format ACL_FORMAT_FRACTAL_NZ", "data type")


def _misfit(o: Operator, name: str) -> Break:
    if name == "dequantScaleQNopeOutOptional":
        full = ("tokenX", *WEIGHTS, "kvCacheRef", "queryOut")
        scales: dict[str, Any] = {key: T(D.FLOAT, of) for key, of in SCALES.items()}
        scales |= {"quantScaleCkvOptional": T(D.FLOAT, (1,)), name: T(D.FLOAT, (7,))}
        modes = {"weightQuantMode": 2, "kvCacheQuantMode": 1, "queryQuantMode": 1} if o.name == NAME else {}
        return Break(dtype(D.INT8, *full) | scales | modes, f"[6, {HEADS}, 1]")
    if name in _given():
        return Break(shape((HEADS, 7, 7) if name == "weightUk" else (7,), name), "shape [")
    return Break({name: T(D.BF16 if "queryNorm" in name else D.FLOAT, (7,))}, "shape [")


def _given() -> set[str]:
    return {name for name, value in _call(D.BF16).items() if isinstance(value, T)}


def _empty(call: Arguments) -> Arguments:
    """Return the call without samples."""
    of_samples = ("tokenX", "rope", "cacheIndex", "query")
    return {
        name: value._replace(shape=(0, *value.shape[1:]))
        if isinstance(value, T) and name.startswith(of_samples)
        else value
        for name, value in call.items()
    }


class TestLatentProjections(LibraryTests):
    subject = Subject(
        latent_projections.OPERATORS,
        calls={NAME: _call, OLD: _old_call},
        references={NAME: _projected, OLD: lambda a: _projected(a | {"qcQrScale": 1.0, "kcScale": 1.0})[:4]},
        default=(D.BF16,),
        numbers=numbers,
        terms=4,
        left=("dequantScaleQNopeOutOptional", "dequantScaleQNormOutOptional"),
        empty={NAME: _empty(_call(D.BF16)), OLD: _empty(_old_call(D.BF16))},
        breaks=BREAKS,
        code=ACLNN_ERR_INNER_TILING_ERROR,
        codes={"present": NULL, "kernel of the product": NO_KERNEL, **dict.fromkeys(EARLY, INVALID)},
    )


def _run(
    call: Arguments, given: Mapping[str, Array], name_of: str = NAME, product: Product = Product.ATLAS_A2
) -> dict[str, Array]:
    """Run with arrays for the tensors of a call; weights lie in FRACTAL_NZ."""
    placed = {name: Placed(given[name], "contiguous") for name, value in call.items() if isinstance(value, T)}
    for name in WEIGHTS:
        placed[name].tensor.format = NZ
    prepare(BY_NAME[name_of], call | {name: each.tensor for name, each in placed.items()}, product).run()
    return {name: each.view.astype(np.float64) for name, each in placed.items()}


def _drawn(call: Arguments, integers: tuple[str, ...] = ()) -> dict[str, Array]:
    random, found = np.random.default_rng(7), {}
    for name, value in call.items():
        if not isinstance(value, T):
            continue
        drawn = random.normal(size=value.shape)
        if name in integers:
            drawn = random.integers(-127, 128, value.shape)
        elif name.startswith(("dequantScale", "smooth")):
            drawn = random.uniform(0.001, 0.002, value.shape)
        elif name.startswith("quantScale"):
            drawn = random.uniform(20, 40, value.shape)
        elif name.startswith("weight"):
            drawn = drawn / 32
        found[name] = drawn.astype(value.dtype.numpy)
    return found | {"cacheIndexOptional": INDEX}


def _with(*integers: str, **changes: Any) -> Arguments:
    call = _call(D.BF16)
    return call | {name: call[name]._replace(dtype=D.INT8) for name in integers} | changes


def _rounded(x: Any) -> tuple[Any, Any]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round(), scale


@pytest.mark.parametrize("cached", [False, True])
def test_the_second_weight_alone_may_be_of_int8(cached: bool) -> None:
    """The latent query is rounded to integers for each token, after smoothing."""
    integers = ("weightUqQr", *(("kvCacheRef", "krCacheRef") if cached else ()), "queryNormOutOptional")
    scales = {
        "dequantScaleWUqQrOptional": T(D.FLOAT, (1, HEADS * 192)),
        "smoothScalesCqOptional": T(D.FLOAT, (1, 1536)),
        "dequantScaleQNormOutOptional": T(D.FLOAT, (SAMPLES * TOKENS, 1)),
    }
    if cached:
        scales |= {"quantScaleCkvOptional": T(D.FLOAT, (1, 512)), "quantScaleCkrOptional": T(D.FLOAT, (1, 64))}
    call = _with(*integers, weightQuantMode=1, kvCacheQuantMode=2 * cached, **scales)
    given = _drawn(call, integers)
    found = _run(call, given)
    a = {name: torch.from_numpy(np.array(value, np.float64)) for name, value in given.items()} | {
        "qcQrScale": 1.5,
        "kcScale": 0.5,
    }
    latent, scale = _rounded(_projected(a)[4].reshape(6, -1) * a["smoothScalesCqOptional"])
    np.testing.assert_array_equal(found["queryNormOutOptional"].reshape(6, -1), latent)
    np.testing.assert_allclose(found["dequantScaleQNormOutOptional"], scale, rtol=1e-6)
    heads = (latent @ a["weightUqQr"] * scale * a["dequantScaleWUqQrOptional"]).unflatten(-1, (HEADS, 192))
    query = torch.einsum("tnd,ndk->tnk", heads[..., :128], a["weightUk"])
    np.testing.assert_allclose(found["queryOut"].reshape(query.shape), query, rtol=2**-7, atol=1e-6)
    caches = _projected(a)[:2]
    for name, factor, expected in zip(
        ("kvCacheRef", "krCacheRef"), ("quantScaleCkvOptional", "quantScaleCkrOptional"), caches, strict=True
    ):
        rows = [(slot // PAGE, slot % PAGE) for slot in INDEX.reshape(-1).tolist()]
        for row in rows:
            wanted = expected[row][0]
            if cached:
                wanted = (wanted * a[factor][0]).round().clamp(-128, 127)
            np.testing.assert_allclose(found[name][row][0], wanted, rtol=2**-7, atol=1e-6)


def test_tokens_weights_and_cache_may_be_of_int8() -> None:
    """The query too has integers then, and its rotary part is scaled as the scores of both parts need."""
    integers = ("tokenX", *WEIGHTS, "kvCacheRef", "queryOut", "queryNormOutOptional")
    scales = {name: T(D.FLOAT, of) for name, of in SCALES.items()} | {
        "quantScaleCkvOptional": T(D.FLOAT, (1,)),
        "dequantScaleQNopeOutOptional": T(D.FLOAT, (SAMPLES * TOKENS, HEADS, 1)),
    }
    call = _with(*integers, weightQuantMode=2, kvCacheQuantMode=1, queryQuantMode=1, **scales)
    given = _drawn(call, integers)
    found = _run(call, given)
    a: dict[str, Any] = {name: torch.from_numpy(np.array(value, np.float64)) for name, value in given.items()}
    x, sin, cos = (a[name].reshape(6, -1) for name in ("tokenX", "ropeSin", "ropeCos"))
    first = x @ a["weightDq"] * a["dequantScaleXOptional"] * a["dequantScaleWDqOptional"]
    latent, scale = _rounded(1.5 * _norm(first, a["rmsnormGammaCq"], 1e-5))
    heads = (latent @ a["weightUqQr"] * scale * a["dequantScaleWUqQrOptional"]).unflatten(-1, (HEADS, 192))
    query, of_query = _rounded(torch.einsum("tnd,ndk->tnk", heads[..., :128], a["weightUk"]))
    np.testing.assert_array_equal(found["queryOut"].reshape(query.shape), query)
    np.testing.assert_allclose(found["dequantScaleQNopeOutOptional"], of_query, rtol=1e-6)
    rotated = _rope(heads[..., 128:], sin[:, None], cos[:, None]) * a["quantScaleCkvOptional"] / of_query
    np.testing.assert_allclose(found["queryRopeOut"].reshape(rotated.shape), rotated, rtol=2**-7, atol=1e-4)
    both = x @ a["weightDkvKr"] * a["dequantScaleXOptional"] * a["dequantScaleWDkvKrOptional"]
    keys = (
        (0.5 * _norm(both[:, :512], a["rmsnormGammaCkv"], 1e-6) * a["quantScaleCkvOptional"]).round().clamp(-128, 127)
    )
    for row, slot in zip(keys, INDEX.reshape(-1).tolist(), strict=True):
        np.testing.assert_array_equal(found["kvCacheRef"][slot // PAGE, slot % PAGE, 0], row)


def _plain(mode: str, **changes: Any) -> dict[str, Array]:
    call = _with(cacheModeOptional=mode, queryNormOutOptional=None, **changes)
    given = _drawn(call) | {name: value for name, value in changes.items() if isinstance(value, np.ndarray)}
    call |= {
        name: T(D.of_numpy(value.dtype), value.shape)
        for name, value in changes.items()
        if isinstance(value, np.ndarray)
    }
    return _run(call, given)


def test_caches_take_tokens_in_every_layout() -> None:
    expected = _plain("PA_BSND")["kvCacheRef"]
    rows = np.stack([expected[slot // PAGE, slot % PAGE, 0] for slot in INDEX.reshape(-1)])
    columns = _plain("PA_NZ")["kvCacheRef"].reshape(PAGES, 512 // 16, PAGE, 16)
    np.testing.assert_array_equal(columns[INDEX // PAGE, :, INDEX % PAGE].reshape(6, 512), rows)
    by_page = _plain("PA_BLK_BSND", cacheIndexOptional=np.array([[2], [0]]))["kvCacheRef"]
    np.testing.assert_array_equal(by_page[[2, 0], :TOKENS, 0].reshape(6, 512), rows)
    in_place = {"kvCacheRef": T(D.BF16, (SAMPLES, TOKENS, 1, 512)), "krCacheRef": T(D.BF16, (SAMPLES, TOKENS, 1, 64))}
    np.testing.assert_array_equal(_plain("BSND", **in_place)["kvCacheRef"].reshape(6, 512), rows)


def _fused(**changes: Any) -> dict[str, Array]:
    """Run tokens without a dimension of samples, of 18 and 2 tokens."""
    tokens = {
        name: T(D.BF16, (20, *rest))
        for name, rest in (
            ("tokenX", (WIDTH,)),
            ("ropeSin", (64,)),
            ("ropeCos", (64,)),
            ("queryOut", (HEADS, 512)),
            ("queryRopeOut", (HEADS, 64)),
        )
    }
    return _plain("PA_BLK_BSND", **tokens, kvCacheRef=np.zeros((PAGES, PAGE, 1, 512), D.BF16.numpy), **changes)


def test_samples_of_packed_tokens_have_pages_of_their_own() -> None:
    found = _fused(cacheIndexOptional=np.array([1, 0, 2]), actualSeqLenOptional=np.array([18, 20], np.int32))[
        "kvCacheRef"
    ]
    written = [(page, row) for page in range(PAGES) for row in range(PAGE) if found[page, row].any()]
    assert written == [(0, 0), (0, 1), *((1, row) for row in range(16)), (2, 0), (2, 1)]
    with pytest.raises(AclnnError, match="a page for each 16 tokens of a sample, got 2"):
        _fused(cacheIndexOptional=np.array([1, 0]), actualSeqLenOptional=np.array([18, 20], np.int32))
    with pytest.raises(AclnnError, match="an end of all tokens from 20 to 20, got 19"):
        _fused(cacheIndexOptional=np.array([1, 0, 2]), actualSeqLenOptional=np.array([18, 19], np.int32))


def test_slots_out_of_range_are_reported() -> None:
    with pytest.raises(AclnnError, match="cacheIndexOptional: expected numbers from 0 to 47, got 48"):
        _plain("PA_BSND", cacheIndexOptional=INDEX + 1)


def test_empty_caches_leave_the_queries_computed() -> None:
    none = {"kvCacheRef": T(D.BF16, (0, PAGE, 1, 512)), "krCacheRef": T(D.BF16, (0, PAGE, 1, 64))}
    np.testing.assert_array_equal(_plain("PA_BSND", **none)["queryOut"], _plain("PA_BSND")["queryOut"])


def test_the_second_function_takes_the_modes_from_data_types() -> None:
    integers = ("weightUqQr", "kvCacheRef", "krCacheRef")
    scales = {
        "dequantScaleWUqQrOptional": T(D.FLOAT, (1, HEADS * 192)),
        "quantScaleCkvOptional": T(D.FLOAT, (1, 512)),
        "quantScaleCkrOptional": T(D.FLOAT, (1, 64)),
    }
    call = _with(
        *integers,
        weightQuantMode=1,
        kvCacheQuantMode=2,
        qcQrScale=1.0,
        kcScale=1.0,
        queryNormOutOptional=None,
        **scales,
    )
    given = _drawn(call, integers)
    expected = _run(call, given)
    taken = {parameter.name for parameter in BY_NAME[OLD].parameters}
    old = {name: value for name, value in call.items() if name in taken} | {"cacheIndex": call["cacheIndexOptional"]}
    found = _run(old, given | {"cacheIndex": INDEX}, OLD)
    for name in ("kvCacheRef", "krCacheRef", "queryOut", "queryRopeOut"):
        np.testing.assert_array_equal(found[name], expected[name])
    with pytest.raises(AclnnError, match="expected data type ACL_BF16 with") as caught:
        _run(old, given | {"cacheIndex": INDEX}, OLD, Product.ASCEND_950)
    assert caught.value.code == INVALID
