"""Attention of inference: layouts, lists, pages, padding, masks and biases, in both 16-bit types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Operator
from aclnn.core.products import Product
from aclnn.core.status import (
    ACLNN_ERR_INNER_NULLPTR,
    ACLNN_ERR_INNER_TILING_ERROR,
    ACLNN_ERR_PARAM_INVALID,
    ACLNN_ERR_PARAM_NULLPTR,
    ACLNN_ERR_RUNTIME_ERROR,
    AclnnError,
)
from aclnn.execution.executor import prepare
from aclnn.operators.library.attention import inference
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    described,
    product_of,
    torch,
)

NAME, V3, V4, V5 = (f"fused_infer_attention_score_v{version}" for version in (2, 3, 4, 5))
FIRST, PROMPTS, INCREMENTS = NAME.removesuffix("_v2"), "prompt_flash_attention", "incre_flash_attention"
PROMPT, INCREMENT = f"{PROMPTS}_v3", f"{INCREMENTS}_v4"
#: Functions that do not read a bias, and those without pages.
UNBIASED = (PROMPTS, f"{PROMPTS}_v2", INCREMENTS, f"{INCREMENTS}_v2")
UNPAGED = (*UNBIASED, PROMPT)
#: Two samples of four heads, two of keys and values, with three queries and five keys of sixteen elements.
B, N, KV, Q, K, E = 2, 4, 2, 3, 5, 16
LENGTHS = "actualSeqLengthsOptional", "actualSeqLengthsKvOptional"
PADDINGS = "queryPaddingSizeOptional", "kvPaddingSizeOptional"
PREFIXES, LENGTH = ("keySharedPrefixOptional", "valueSharedPrefixOptional"), "actualSharedPrefixLenOptional"
SINK = "learnableSinkOptional"
MODES = "antiquantMode", "keyAntiquantMode", "valueAntiquantMode"
ATTRIBUTES: Arguments = dict.fromkeys(
    (*MODES, "queryQuantMode", "pseType", "sparseMode", "innerPrecise", "blockSize"), 0
) | {
    "numHeads": N,
    "numKeyValueHeads": KV,
    "scaleValue": 0.5,
    "preTokens": 65535,
    "nextTokens": 65535,
    "inputLayout": "BNSD",
    "softmaxLseFlag": True,
}


def own(of: str, name: str) -> str:
    """A function's name of a parameter of aclnnFusedInferAttentionScoreV5."""
    if of.startswith(INCREMENTS):
        others = {"actualSeqLengthsKvOptional": "actualSeqLengths", "blockTableOptional": "blocktable"}
        name = others.get(name, name.replace("deq", "dequant"))
    return name if of in (NAME, V3, V4, V5) else name.removesuffix("Optional")


NAMES = {
    of: {
        own(of, p.name): p.name
        for p in BY_NAME[V5].parameters
        if not (of.startswith(INCREMENTS) and p.name == LENGTHS[0])
    }
    for of in (o.name for o in inference.OPERATORS)
}
"""The names in aclnnFusedInferAttentionScoreV5 of functions' parameters."""


def owned(of: str, arguments: Arguments, lists: tuple[str, ...] = ("key", "value")) -> Arguments:
    """The arguments of a function, of those by V5's names; its keys and values are lists, or tensors."""
    named = {p.name: arguments.get(NAMES[of][p.name]) for p in BY_NAME[of].parameters if NAMES[of][p.name] in arguments}
    if not of.startswith(PROMPTS):
        return named
    return {name: x[0] if name in lists and x else x for name, x in named.items()}


def _call(d: D = D.FLOAT16, **change: Any) -> Arguments:
    query, key = T(d, (B, N, Q, E)), T(d, (B, KV, K, E))
    call: Arguments = {"query": query, "key": (key,), "value": (key,), "attentionOut": query}
    call |= {"pseShiftOptional": T(d, (B, N, Q, K)), "attenMaskOptional": T(D.BOOL, (B, 1, Q, K))}
    call |= {"softmaxLse": T(D.FLOAT, (B, N, Q, 1))}
    return {p.name: (ATTRIBUTES | call).get(p.name) for p in BY_NAME[V5].parameters} | change


def _one(d: D = D.FLOAT16, **change: Any) -> Arguments:
    """A call with one query."""
    query = T(d, (B, N, 1, E))
    given = {"query": query, "attentionOut": query, "pseShiftOptional": T(d, (B, N, 1, K))}
    return _call(d, **given, attenMaskOptional=T(D.INT8, (B, K)), softmaxLse=T(D.FLOAT, (B, N, 1, 1))) | change


def _paged(size: int = 128, **change: Any) -> Arguments:
    """A call of up to two pages a sample."""
    keys = (T(D.FLOAT16, (3, size, KV * E)),)
    given = {"key": keys, "value": keys, "blockTableOptional": T(D.INT32, (B, 2)), "blockSize": size}
    return _call(pseShiftOptional=None, attenMaskOptional=None, actualSeqLengthsKvOptional=(130, 9), **given) | change


def attended(q: Any, k: Any, v: Any, scale: float, bias: Any = 0.0, masked: Any = False) -> tuple[Any, Any]:
    """NumPy's attention of float64 samples (N, S, D), and the logarithms of the rows' sums."""
    k, v = (np.repeat(x, q.shape[0] // k.shape[0], 0) for x in (k, v))
    found = np.where(masked, -np.inf, scale * (q @ k.swapaxes(1, 2)) + bias)
    top = found.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(found - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return powers @ v / np.where(total == 0, 1, total), np.where(total == 0, np.inf, top + np.log(total))


def _reference(of: str, a: Mapping[str, Any]) -> list[Any]:
    q, bias = (a[own(of, name)].double().numpy() for name in ("query", "pseShiftOptional"))
    bias = bias * (of not in UNBIASED)
    k, v = (torch.stack([*a[name]]).double().numpy().reshape(B, KV, K, E) for name in ("key", "value"))
    mask = a[own(of, "attenMaskOptional")].numpy().reshape(B, 1, -1, K)
    parts = [attended(*(x[at] for x in (q, k, v)), a["scaleValue"], bias[at], mask[at]) for at in range(B)]
    results = [torch.from_numpy(np.stack(each)) for each in zip(*parts, strict=True)]
    return results[:1] if of.startswith((PROMPTS, INCREMENTS)) else results


def _unmasked_first(operator: str, name: str, array: Any) -> Any:
    if name.startswith("attenMask"):
        array[..., 0] = False
    return array


def _list(*shapes: tuple[int, ...], of: D = D.FLOAT16, form: Format = Format.FORMAT_ND) -> tuple[T, ...]:
    return tuple(T(of, each, form) for each in shapes)


def _unknown_dtype(name: str) -> Mapping[str, Any]:
    absent = {"blockTableOptional": (B, 2), **dict.fromkeys(PADDINGS, (1,))}
    return {name: T(D.FLOAT, absent[name])} if name in absent else dtype(D.INT32, name)


def _broken_pages(of: str, name: str) -> Break:
    change, expected = {
        "blockTableOptional": ({name: T(D.INT32, (3, 2))}, "a row for each"),
        "blockSize": ({name: 1025}, "to 1024" if of == V5 else "to 512"),
        LENGTHS[1]: ({name: None}, "the lengths"),
    }[name]
    return Break(_paged(**_queries(of)) | change, expected)


def _queries(of: str) -> Arguments:
    """Return the query and the output of a function's calls."""
    queries = T(D.FLOAT16, (B, N, 1 if of.startswith(INCREMENTS) else Q, E))
    return {"query": queries, "attentionOut": queries}


def _broken_prefix(name: str) -> Mapping[str, Any]:
    """A call with a prefix of two keys, but for the one named; without a name a valid one."""
    given: Arguments = dict.fromkeys(PREFIXES, T(D.FLOAT16, (1, KV, 2, E)))
    given |= {"pseShiftOptional": None, "attenMaskOptional": None, LENGTH: None}
    return given | ({name: (3,) if name == LENGTH else None} if name else {})


def _broken_number(of: str) -> Break:
    if of in UNPAGED:
        return Break({"pseShiftOptional": None, "attenMaskOptional": None} | _far(20971521), "at most 20971520")
    return Break(_paged(**_queries(of), actualSeqLengthsKvOptional=(130, 130)), "4 blocks")


def _packed(**change: Any) -> Arguments:
    """A call of two samples in a row, without a mask."""
    tokens, keys = T(D.FLOAT16, (4, N, E)), _list((9, KV, E))
    call = {"query": tokens, "attentionOut": tokens, "softmaxLse": T(D.FLOAT, (4, N, 1)), "key": keys, "value": keys}
    call |= dict.fromkeys(("pseShiftOptional", "attenMaskOptional")) | {LENGTHS[0]: (1, 4), LENGTHS[1]: (4, 9)}
    return _call(**call, inputLayout="TND") | change


def _broken_row(name: str) -> Arguments:
    tensor = T(D.INT64 if name in PADDINGS else D.FLOAT16, (1,))
    return _packed(**{name: 2 if name == "sparseMode" else None if name in LENGTHS else tensor})


def _far(keys: int) -> Arguments:
    return dict.fromkeys(("key", "value"), _list((B, KV, keys, E)))


BREAKS: Mapping[str, Breaking] = {
    "as many tensors": lambda o, name: Break({name: ()}, "1 tensor"),
    "no null among them": lambda o, name: Break({name: (None,)}, "an object"),
    "requested": lambda o, name: Break({name: None}, "an object"),
    "no private format each": lambda o, name: Break(
        {name: _list((B, KV, K, E), form=Format.FORMAT_FRACTAL_NZ)}, "ACL_FORMAT_ND"
    ),
    "data type": lambda o, name: Break(_unknown_dtype(name), "data type"),
    "data type of query each": lambda o, name: Break({name: _list((B, KV, K, E), of=D.INT8)}, "ACL_FLOAT16"),
    "same data type as query": lambda o, name: Break(
        {name: T(D.BF16, (N,) if name == SINK else (1, KV, 2, E))}, "ACL_FLOAT16"
    ),
    "not computed": lambda o, name: Break(
        {name: T(D.FLOAT, (2,))}, "rotary parts" if "Rope" in name else "quantized data"
    ),
    "allowed value": lambda o, name: Break(
        {name: "SBH" if name == "inputLayout" else 4},
        {"inputLayout": "'BSH'"}.get(name, " or "),
    ),
    "data type of slopes": lambda o, name: Break({"pseType": 2}, "ACL_FLOAT with"),
    "slopes": lambda o, name: Break({name: None, "pseType": 2}, "expected slopes"),
    "distance": lambda o, name: Break(
        {name: (1 << 21,), "pseType": 2, "pseShiftOptional": T(D.FLOAT, (N,)), LENGTHS[1]: (Q,)}, "at most 1048576"
    ),
    "heads": lambda o, name: Break(
        {name: 0 if name == "numHeads" else 3}, "from 1 to" if name == "numHeads" else "a div"
    ),
    "dimensions of the layout": lambda o, name: Break(
        shape((B, Q, N * E), name) if name == "query" else {name: _list((B, K, KV * E))}, "4 dimensions"
    ),
    "heads and extents": lambda o, name: Break(
        shape((B, 3, 1 if o.name.startswith(INCREMENTS) else Q, E), name), "4 whole heads"
    ),
    "samples in a row": lambda o, name: Break(_broken_row(name), "with inputLayout TND"),
    "one query": lambda o, name: Break(shape((B, N, Q, E), name), "one query"),
    "elements of a token": lambda o, name: Break(
        {name: T(D.FLOAT16, (B, Q, 128, 512)), "inputLayout": "BSND", "numHeads": 128}, "fewer than 65535"
    ),
    "several queries": lambda o, name: Break(_one(inputLayout="BNSD_BSND"), "BSH"),
    "tensors of samples": lambda o, name: Break(dict.fromkeys((name, "value"), _list(*[(1, KV, K, E)] * 3)), "tensor"),
    "shape of keys": lambda o, name: Break({name: _list((B, 4, K, E))}, "shape [2, 2, 5, 16]"),
    "shape of values": lambda o, name: Break({name: _list((B, KV, 4, E))}, "shape ["),
    "shape is that of the attention": lambda o, name: Break(shape((B, Q, N, E), name), "shape ["),
    "shape is [B, N, S, 1]": lambda o, name: Break(shape((B, N, Q), name), "shape ["),
    "shared prefixes": lambda o, name: Break(_broken_prefix(name), "one length" if name == LENGTH else "a tensor"),
    "pages": lambda o, name: _broken_pages(o.name, name),
    "lengths": lambda o, name: Break({name: (2, 6)}, "from 0 to"),
    "number of keys": lambda o, name: _broken_number(o.name),
    "padding": lambda o, name: Break({name: T(D.INT64, (2,))}, "shape [1]"),
    "modes of dequantization": lambda o, name: Break(_one(**{name: 9}), "from 0"),
    "known mode": lambda o, name: Break({name: 5}, "0 to 4"),
    "shape of the mask": lambda o, name: Break({name: T(D.BOOL, (B, N, Q, K))}, "shape ["),
    "shape of the bias": lambda o, name: Break({name: T(D.FLOAT16, (B, 1, Q, K))}, "shape ["),
    "with preTokens": lambda o, name: Break({"preTokens": 1, "nextTokens": -2}, "at least -1"),
    "a number a head": lambda o, name: Break({name: T(D.FLOAT16, (KV,))}, "shape [4]"),
}
INVALID = ("no private format", "no private format each", "data type", "data type of query each")
EMPTY = T(D.FLOAT16, (0, KV, K, E))


def _spelt(breaking: Breaking) -> Breaking:
    """Break the check of any function as that of V5."""

    def spelt(o: Operator, name: str) -> Break:
        found = breaking(o, NAMES[o.name][name])
        return found._replace(change=owned(o.name, found.change))

    return spelt


def _valid(of: str, d: D) -> Arguments:
    d = d if d == D.BF16 else D.FLOAT16
    return owned(of, _one(d) if of.startswith(INCREMENTS) else _call(d))


def _nothing(of: str) -> Arguments:
    query = T(D.FLOAT16, (0, N, 1 if of.startswith(INCREMENTS) else Q, E))
    empty = _call(key=(EMPTY,), value=(EMPTY,), pseShiftOptional=None, attenMaskOptional=None)
    return owned(of, empty | {"query": query, "attentionOut": query, "softmaxLse": T(D.FLOAT, (0, N, Q, 1))})


SUBJECT = Subject(
    inference.OPERATORS,
    calls={of: partial(_valid, of) for of in NAMES},
    references={of: partial(_reference, of) for of in NAMES},
    default=(D.FLOAT16, D.BF16),
    empty={of: _nothing(of) for of in NAMES},
    breaks={title: _spelt(breaking) for title, breaking in BREAKS.items()},
    numbers=_unmasked_first,
    code=ACLNN_ERR_INNER_TILING_ERROR,
    codes=dict.fromkeys((*INVALID, "same data type as query", "data type of slopes"), ACLNN_ERR_PARAM_INVALID)
    | {"requested": ACLNN_ERR_PARAM_NULLPTR, "not computed": ACLNN_ERR_INNER_NULLPTR},
)
#: With interfaces that are generated: what the tiling function rejects has its code.
GENERATED = tuple(o for o in inference.OPERATORS if o.name.startswith((V5, INCREMENTS)))


class TestInference(LibraryTests):
    subject = replace(
        SUBJECT,
        operators=tuple(o for o in inference.OPERATORS if o not in GENERATED),
        codes={**SUBJECT.codes, "as many tensors": ACLNN_ERR_PARAM_INVALID},
    )


class TestGeneratedInterfaces(LibraryTests):
    subject = replace(SUBJECT, operators=GENERATED)


@pytest.mark.parametrize("of", [of for of in NAMES if not of.startswith(PROMPTS)])
def test_invalid_lists_of_keys_and_values_have_the_interfaces_code(of: str) -> None:
    """CANN's host code looks at them itself but for the two generated interfaces."""
    keys, values = _list((B, KV, K, E)), _list(*[(1, KV, K, E)] * B)
    code = ACLNN_ERR_INNER_TILING_ERROR if of == V5 or of.startswith(INCREMENTS) else ACLNN_ERR_PARAM_INVALID
    for change in ({"key": (), "value": ()}, {"key": keys, "value": values}):
        with pytest.raises(AclnnError, match="tensor") as caught:
            prepare(BY_NAME[of], described(_valid(of, D.FLOAT16) | change), product_of(BY_NAME[of]))
        assert caught.value.code == code


@pytest.mark.parametrize("of", [of for of in NAMES if of != V5])
def test_ascend_950_has_the_latest_versions_alone(of: str) -> None:
    """CANN 9.1 answers 361001 there, before it looks at anything."""
    for change in ({}, {"query": None}):
        with pytest.raises(AclnnError, match="got Ascend 950") as caught:
            prepare(BY_NAME[of], described(_valid(of, D.FLOAT16) | change), Product.ASCEND_950)
        assert caught.value.code == ACLNN_ERR_RUNTIME_ERROR


@pytest.mark.parametrize("of", NAMES)
def test_empty_outputs_are_accepted_with_any_arguments(of: str) -> None:
    """CANN's tests give tensors of a layout that is not computed, and heads and blocks of any size."""
    given = {
        "attentionOut": T(D.FLOAT16, (0,)),
        "query": T(D.FLOAT16, (4, 1, 288)),
        "inputLayout": "TND",
        "numHeads": 1,
    }
    call = described(_valid(of, D.FLOAT16) | given)
    assert BY_NAME[of].work(Call(BY_NAME[of], call, product_of(BY_NAME[of]))) is None
    prepare(BY_NAME[of], call, product_of(BY_NAME[of]))


class Given:
    """Random samples, of as many keys as wanted."""

    def __init__(self, seed: int = 0, queries: int = Q, keys: int = K, d: Any = np.float16) -> None:
        self.random = np.random.default_rng(seed)
        sizes = (B, N, queries, E), (B, KV, keys, E), (B, KV, keys, E)
        self.q, self.k, self.v = (self.random.normal(size=each).astype(d) for each in sizes)

    def expected(
        self, queries: Sequence[slice] = (slice(None),) * B, keys: Sequence[slice] = (slice(None),) * B, **more: Any
    ) -> tuple[Any, Any]:
        """The attention (B, N, S, D) of slices of the samples, zeros beyond them, and softmaxLse."""
        out, logarithms = np.zeros(self.q.shape), np.full((*self.q.shape[:3], 1), np.inf)
        for at, (rows, columns) in enumerate(zip(queries, keys, strict=True)):
            own = {
                word: np.broadcast_to(x, (B, N, self.q.shape[2], self.k.shape[2]))[at, :, rows, columns]
                for word, x in more.items()
            }
            q, k, v = self.q[at, :, rows], self.k[at, :, columns], self.v[at, :, columns]
            out[at, :, rows], logarithms[at, :, rows] = attended(*(x.astype(float) for x in (q, k, v)), 0.5, **own)
        return out, logarithms


def laid_out(x: Any, layout: str) -> Any:
    """A tensor (B, N, S, D) in a layout."""
    moved = np.ascontiguousarray(x if layout == "BNSD" else x.swapaxes(1, 2))
    return moved.reshape(*moved.shape[:2], -1) if layout == "BSH" else moved


def computed(
    q: Any,
    keys: Sequence[Any],
    values: Sequence[Any],
    layout: str = "BNSD",
    wanted: bool = True,
    of: str = NAME,
    product: Product = Product.ATLAS_A2,
    **more: Any,
) -> tuple[Any, Any]:
    """Run the operator on arrays in the layout; return the attention in BNSD and softmaxLse."""
    out = laid_out(np.full((B, N, more.pop("queries", Q), E), np.nan, q.dtype), layout.rpartition("_")[2])
    logarithms = np.full((B, N, out.size // (B * N * E), 1), np.nan, np.float32)
    arrays = {"query": q, "attentionOut": out, "softmaxLse": logarithms if wanted else None}
    arrays |= {name: x for name, x in more.items() if isinstance(x, np.ndarray)}
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items() if x is not None}
    listed = {name: [Placed(x, "contiguous") for x in xs] for name, xs in (("key", keys), ("value", values))}
    arguments = {p.name: ATTRIBUTES.get(p.name) for p in BY_NAME[V5].parameters} | {"inputLayout": layout} | more
    arguments |= {name: each.tensor for name, each in placed.items()}
    arguments |= {name: tuple(each.tensor for each in listed[name]) for name in listed}
    prepare(BY_NAME[of], owned(of, arguments | {"softmaxLseFlag": wanted}), product).run()
    assert all(each.untouched_outside() for each in placed.values())
    found = placed["attentionOut"].view
    if layout == "BSH":
        found = found.reshape(*found.shape[:2], N, E)
    return found if layout == "BNSD" else found.swapaxes(1, 2), logarithms if not wanted else placed["softmaxLse"].view


def assert_close(found: tuple[Any, Any], expected: tuple[Any, Any]) -> None:
    digits = 2.0**-10 if found[0].dtype == np.float16 else 2.0**-7
    np.testing.assert_allclose(found[0].astype(float), expected[0], rtol=digits, atol=digits * 2.0**-8)
    np.testing.assert_allclose(found[1], expected[1], rtol=2.0**-20, atol=2.0**-20)


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD", "BNSD_BSND"])
@pytest.mark.parametrize("d", [np.float16, D.BF16.numpy])
def test_layouts_hold_the_same_samples(layout: str, d: Any) -> None:
    given = Given(d=d)
    q, k, v = (laid_out(x, layout.partition("_")[0]) for x in (given.q, given.k, given.v))
    assert_close(computed(q, [k], [v], layout), given.expected())


def test_without_its_flag_softmax_lse_is_not_needed() -> None:
    given = Given()
    found, kept = computed(given.q, [given.k], [given.v], wanted=False)
    assert np.isnan(kept).all()
    np.testing.assert_allclose(found, given.expected()[0], rtol=2.0**-10, atol=2.0**-18)


def test_num_key_value_heads_0_means_one_per_query_head() -> None:
    given = Given()
    given.k, given.v = (np.repeat(x, N // KV, 1) for x in (given.k, given.v))
    assert_close(computed(given.q, [given.k], [given.v], numKeyValueHeads=0), given.expected())


def test_keys_may_be_one_tensor_per_sample() -> None:
    given = Given(1)
    keys, values = ([x[:1], x[1:, :, :3]] for x in (given.k, given.v))
    assert_close(computed(given.q, keys, values), given.expected(keys=(slice(5), slice(3))))


@pytest.mark.parametrize(("queries", "keys"), [((2, 3), (4, 5)), ((2,), (3,)), ((3, 0, 9), (0, 5)), ((), ())])
def test_lengths_cut_queries_and_keys(queries: tuple[int, ...], keys: tuple[int, ...]) -> None:
    given = Given(2)
    spans = [[slice(x[at % len(x)] if x else None) for at in range(B)] for x in (queries, keys)]
    found = computed(given.q, [given.k], [given.v], **dict(zip(LENGTHS, (queries, keys), strict=True)))
    assert_close(found, given.expected(*spans))


@pytest.mark.parametrize("mode", [0, 1])
def test_left_padding_shifts_masks_and_biases_too(mode: int) -> None:
    given = Given(3)
    mask = given.random.random((B, 1, Q, K)) < 0.3
    bias = given.random.normal(size=(1, N, Q, K)).astype(np.float16)
    found = computed(
        *(given.q, [given.k], [given.v]),
        sparseMode=mode,
        preTokens=0,
        nextTokens=0,
        attenMaskOptional=mask,
        pseShiftOptional=bias,
        queryPaddingSizeOptional=np.array([-5]),
        kvPaddingSizeOptional=np.array([1]),
        actualSeqLengthsOptional=(2, 3),
        actualSeqLengthsKvOptional=(3, 4),
    )
    spans = (slice(1, 3), slice(3)), (slice(1, 4), slice(4))
    assert_close(found, given.expected(*spans, bias=bias.astype(float), masked=mask))


def test_a_sample_with_more_padding_than_room_gives_zeros() -> None:
    given = Given(4)
    padding = {"kvPaddingSizeOptional": np.array([2])}
    found = computed(given.q, [given.k], [given.v], **padding, actualSeqLengthsKvOptional=(4, 3))
    assert_close(found, given.expected(keys=(slice(0), slice(3))))


def test_padding_without_lengths_is_ignored() -> None:
    given = Given(4)
    padding = dict.fromkeys(PADDINGS, np.array([2]))
    assert_close(computed(given.q, [given.k], [given.v], **padding), given.expected())


@pytest.mark.parametrize("whole_tokens", [True, False])
@pytest.mark.parametrize("queries", [1, 3])
def test_a_block_table_selects_pages_of_keys(whole_tokens: bool, queries: int) -> None:
    given = Given(5, queries, 256)
    size, lengths, table = 128, (130, 100), np.array([[3, 1], [0, -7]], np.int32)
    pages = []
    for x in (given.k, given.v):
        cache = given.random.normal(size=(4, KV, size, E)).astype(np.float16)
        for at, begin, page in ((0, 0, 3), (0, size, 1), (1, 0, 0)):
            cache[page] = x[at, :, begin : begin + size]
        pages.append(laid_out(cache, "BSH") if whole_tokens else cache)
    found = computed(
        *(given.q, [pages[0]], [pages[1]]),
        queries=queries,
        blockTableOptional=table,
        blockSize=size,
        actualSeqLengthsKvOptional=lengths,
    )
    assert_close(found, given.expected(keys=[slice(length) for length in lengths]))


@pytest.mark.parametrize("paged", [False, True])
def test_samples_in_a_row_have_ends(paged: bool) -> None:
    """With TND, in pages too; the mask of mode 3 ends with the last query and key of each sample."""
    queries, lengths, size = (1, Q), (4, K), 128
    given = Given(6)
    masked = np.ones((B, 1, Q, K), bool)
    for at, (rows, columns) in enumerate(zip(queries, lengths, strict=True)):
        masked[at, 0, :rows, :columns] = np.triu(np.ones((rows, columns), bool), columns - rows + 1)
    spans = [[slice(length) for length in each] for each in (queries, lengths)]
    wanted = given.expected(*spans, masked=masked)

    def row(x: Any, counts: tuple[int, ...]) -> Any:
        return np.concatenate([x[at, :, :count].swapaxes(0, 1) for at, count in enumerate(counts)])

    keys = [row(x, lengths) for x in (given.k, given.v)]
    more: dict[str, Any] = {}
    if paged:
        keys = [np.zeros((3, size, KV * E), np.float16) for _ in range(2)]
        for cache, x in zip(keys, (given.k, given.v), strict=True):
            for page, at in ((2, 0), (0, 1)):
                cache[page, :K] = laid_out(x, "BSH")[at]
        more = {"blockTableOptional": np.array([[2], [0]], np.int32)}
    arrays = {"query": row(given.q, queries), "attentionOut": np.full((4, N, E), np.nan, np.float16)}
    arrays |= {"softmaxLse": np.full((4, N, 1), np.nan, np.float32)}
    arrays |= {"attenMaskOptional": np.zeros((2048, 2048), np.int8)} | more
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items()}
    lists = {name: Placed(x, "contiguous") for name, x in zip(("key", "value"), keys, strict=True)}
    arguments = ATTRIBUTES | {name: each.tensor for name, each in placed.items()}
    arguments |= {name: (each.tensor,) for name, each in lists.items()}
    arguments |= {"inputLayout": "TND", "sparseMode": 3, "blockSize": size * paged, LENGTHS[0]: (1, 4)}
    arguments |= {LENGTHS[1]: lengths if paged else (4, 9)}
    prepare(BY_NAME[V3], {p.name: arguments.get(p.name) for p in BY_NAME[V3].parameters}, Product.ATLAS_A2).run()
    found = placed["attentionOut"].view, placed["softmaxLse"].view
    assert_close(found, (row(wanted[0], queries), row(wanted[1], queries)))


def test_a_nonexistent_page_is_rejected() -> None:
    pages, table = [np.zeros((2, 128, KV * E), np.float16)], np.array([[0], [2]], np.int32)
    lengths = {"actualSeqLengthsKvOptional": (1, 1), "blockSize": 128}
    with pytest.raises(AclnnError, match="key: expected numbers of its blocks from 0 to 1, got 2"):
        computed(Given().q, pages, pages, blockTableOptional=table, **lengths)


@pytest.mark.parametrize("layout", ["BSH", "BNSD"])
@pytest.mark.parametrize("length", [None, (3,), (0,)])
@pytest.mark.parametrize("mode", [0, 3])
def test_shared_prefixes_are_keys_of_every_sample(layout: str, length: tuple[int, ...] | None, mode: int) -> None:
    given, shared, lengths = Given(11), 4 if length is None else length[0], (5, 3)
    prefixes = given.random.normal(size=(2, 1, KV, 4, E)).astype(np.float16)
    bias = given.random.normal(size=(B, N, Q, 4 + K)).astype(np.float16)
    masks: dict[str, Any] = {"attenMaskOptional": np.zeros((2048, 2048), np.uint8)} if mode else {}
    q, k, v, *own = (laid_out(x, layout) for x in (given.q, given.k, given.v, *prefixes))
    found = computed(
        *(q, [k], [v], layout),
        **dict(zip(PREFIXES, own, strict=True)),
        **{LENGTH: length, LENGTHS[1]: lengths, "pseShiftOptional": bias, "sparseMode": mode},
        **masks,
    )
    given.k, given.v = (
        np.concatenate((np.repeat(prefix[:, :, :shared], B, 0), x), 2)
        for prefix, x in zip(prefixes, (given.k, given.v), strict=True)
    )
    more = {"bias": bias[..., : shared + K].astype(float)}
    if mode:
        masked = [np.pad(_rule(3, Q, shared + each, 0, 0), ((0, 0), (0, K - each))) for each in lengths]
        more["masked"] = np.stack(masked)[:, None]
    assert_close(found, given.expected(keys=[slice(shared + each) for each in lengths], **more))


def _rule(mode: int, queries: int, keys: int, before: int, after: int) -> Any:
    """Mask the scores of a mode, element by element."""
    masked = np.zeros((queries, keys), bool)
    for i in range(queries):
        for j in range(keys):
            last = i + keys - queries
            masked[i, j] = {2: j > i, 3: j > last, 4: not last - before <= j <= last + after}[mode]
    return masked


@pytest.mark.parametrize("mode", [2, 3, 4])
@pytest.mark.parametrize("ones", range(3))
def test_modes_mask_by_their_own_rules(mode: int, ones: int) -> None:
    given, lengths = Given(6), (4, 2)
    mask = np.ones((*(1,) * ones, 2048, 2048), np.uint8)
    bounds = {"preTokens": 1, "nextTokens": 0, "actualSeqLengthsKvOptional": lengths}
    found = computed(given.q, [given.k], [given.v], sparseMode=mode, attenMaskOptional=mask, **bounds)
    masked = np.ones((B, 1, Q, K), bool)
    for at, length in enumerate(lengths):
        masked[at, 0, :, :length] = _rule(mode, Q, length, 1, 0)
    assert_close(found, given.expected(keys=[slice(length) for length in lengths], masked=masked))


@pytest.mark.parametrize("lead", [(), (1,), (B,), (1, 1), (B, 1)])
@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("d", [np.bool_, np.int8, np.uint8])
def test_masks_may_be_larger_than_the_scores(lead: tuple[int, ...], mode: int, d: Any) -> None:
    given = Given(7)
    mask = (given.random.random((*lead, 16, 32)) < 0.3).astype(d)
    mask[..., 1] = 0
    found = computed(given.q, [given.k], [given.v], sparseMode=mode, attenMaskOptional=mask, nextTokens=1)
    used = np.broadcast_to(mask if len(lead) != 1 else mask[:, None], (B, 1, 16, 32))[..., :Q, :K] != 0
    i, j = np.indices((Q, K))
    assert_close(found, given.expected(masked=used | (j - i > 1) if mode == 0 else used))


@pytest.mark.parametrize("dims", [(B, K), (B, 1, K), (B, 1, 1, K + 3)])
def test_sparse_mode_is_ignored_for_one_query(dims: tuple[int, ...]) -> None:
    given = Given(8, queries=1)
    mask = given.random.random(dims) < 0.4
    mask[..., 1] = False
    ignored = {"sparseMode": 9, "preTokens": 0, "nextTokens": 0, "actualSeqLengthsOptional": (7,)}
    found = computed(given.q, [given.k], [given.v], queries=1, attenMaskOptional=mask, **ignored)
    assert_close(found, given.expected(masked=mask.reshape(B, 1, 1, -1)[..., :K]))


@pytest.mark.parametrize("dims", [(B, N, Q, K), (1, N, Q, K), (1, N, Q + 2, K + 11)])
@pytest.mark.parametrize("precise", range(4))
def test_biases_may_be_minus_infinity_and_larger_than_the_scores(dims: tuple[int, ...], precise: int) -> None:
    """llama.cpp masks in this way; the second row is masked completely."""
    given = Given(9)
    bias = np.where(given.random.random(dims) < 0.3, -np.inf, given.random.normal(size=dims)).astype(np.float16)
    bias[:, :, 1] = -np.inf
    found = computed(given.q, [given.k], [given.v], pseShiftOptional=bias, innerPrecise=precise)
    assert not found[0][:, :, 1].any()
    assert np.isposinf(found[1][:, :, 1]).all()
    assert_close(found, given.expected(bias=bias[..., :Q, :K].astype(float)))


def test_attention_without_keys_is_zero() -> None:
    given = Given(10, keys=0)
    found = computed(given.q, [given.k], [given.v])
    assert not found[0].any()
    assert np.isposinf(found[1]).all()


def test_the_documents_example_of_ones_is_reproduced() -> None:
    """The document's example: one query and 512 keys of two heads of 128 ones."""
    q, keys = np.ones((B, N, 1, E), np.float16), [np.ones((B, KV, 512, E), np.float16)]
    found = computed(q, keys, keys, queries=1, scaleValue=1 / math.sqrt(E))
    assert (found[0] == 1).all()
    np.testing.assert_allclose(found[1], 4 + math.log(512), rtol=2.0**-20)


def _sunk(elements: int = 64, **change: Any) -> Arguments:
    """A call with a sink."""
    query, keys = T(D.FLOAT16, (B, N, Q, elements)), _list((B, KV, K, elements))
    given = {"query": query, "attentionOut": query, "key": keys, "value": keys, SINK: T(D.FLOAT16, (N,))}
    return _call(**given, pseShiftOptional=None) | change


def test_a_sink_takes_a_share_of_each_row() -> None:
    """A sink acts like a key with value 0 whose score is the head's number."""
    random = np.random.default_rng(16)
    q, k, v = (random.normal(size=(B, heads, of, 64)).astype(np.float16) for heads, of in ((N, Q), (KV, K), (KV, K)))
    sink, out = np.array([-1, 0, 2, 9], np.float16), np.empty_like(q)
    lse = np.empty((B, N, Q, 1), np.float32)
    arrays = {"query": q, "attentionOut": out, "softmaxLse": lse, SINK: sink}
    placed = {name: Placed(x, "contiguous") for name, x in arrays.items()}
    lists = {name: [Placed(x, "contiguous")] for name, x in (("key", k), ("value", v))}
    arguments = _sunk(attenMaskOptional=None) | {name: each.tensor for name, each in placed.items()}
    arguments |= {name: (each[0].tensor,) for name, each in lists.items()}
    prepare(BY_NAME[V4], arguments, Product.ATLAS_A2).run()
    kept, values = (torch.from_numpy(x).double().repeat_interleave(N // KV, 1) for x in (k, v))
    scores = 0.5 * torch.from_numpy(q).double() @ kept.mT
    scores = torch.cat((scores, torch.from_numpy(sink).double()[None, :, None, None].expand(B, N, Q, 1)), -1)
    expected = (scores.softmax(-1)[..., :-1] @ values).numpy()
    np.testing.assert_allclose(placed["attentionOut"].view, expected, rtol=2.0**-10, atol=2.0**-18)
    np.testing.assert_allclose(placed["softmaxLse"].view, scores.logsumexp(-1, True).numpy(), rtol=2.0**-20)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("with heads of 16 elements", {"elements": 16}),
        ("with pseShiftOptional", {"pseShiftOptional": T(D.FLOAT16, (B, N, Q, K))}),
        ("with kvPaddingSizeOptional", {"kvPaddingSizeOptional": T(D.INT64, (1,))}),
    ],
)
def test_invalid_sinks_are_rejected(text: str, change: Arguments) -> None:
    with pytest.raises(AclnnError, match=f"{SINK}: expected none {text}") as caught:
        prepare(BY_NAME[V4], described(_sunk(**change)), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


WIDE = _list((300, 128, 256 * 512))
ERRORS: Mapping[str, Arguments] = {
    r"attenMaskOptional: expected a mask \(sparseMode 1\)": _call(sparseMode=1, attenMaskOptional=None),
    r"attenMaskOptional: expected shape \[2048, 2048\]": _call(sparseMode=2),
    "query: expected S of at most": _call(query=T(D.FLOAT16, (B, N, 20971521, E))),
    "query: expected heads of a multiple of 16": _call(query=T(D.FLOAT16, (B, N, Q, 15))),
    "numKeyValueHeads: .* 64 times": _call(numHeads=130, numKeyValueHeads=2),
    "key: expected 1 tensor, or one for each of 2": _paged(
        **dict.fromkeys(("key", "value"), _list(*[(3, 128, KV * E)] * 2))
    ),
    r"key\[0\]: expected 3 dimensions": _paged(
        inputLayout="BSND", key=_list((3, KV, 128, E)), query=T(D.FLOAT16, (B, Q, N, E))
    ),
    "blockSize: expected 256": _paged(key=_list((3, 256, KV * E)), value=_list((3, 256, KV * E))),
    "actualSeqLengthsOptional: expected 1 length or 3": _call(
        key=_list((3, KV, K, E)),
        value=_list((3, KV, K, E)),
        softmaxLse=T(D.FLOAT, (3, N, Q, 1)),
        actualSeqLengthsOptional=(1, 1),
    )
    | dict.fromkeys(("query", "attentionOut"), T(D.FLOAT16, (3, N, Q, E))),
    "kvPaddingSizeOptional: expected none with": _paged(kvPaddingSizeOptional=T(D.INT64, (1,))),
    "keySharedPrefixOptional: expected none with": _paged(**dict.fromkeys(PREFIXES, T(D.FLOAT16, (1, KV, 2, E)))),
    r"keySharedPrefixOptional: expected shape \[1, 2, 2, 16\]": _call(
        **_broken_prefix("") | {PREFIXES[0]: T(D.FLOAT16, (1, 4, 2, E))}
    ),
    r"valueSharedPrefixOptional: expected shape \[1, 2, 2, 16\]": _call(
        **_broken_prefix("") | {PREFIXES[1]: T(D.FLOAT16, (1, KV, 3, E))}
    ),
    "keySharedPrefixOptional: expected a tensor": _call(**_broken_prefix(PREFIXES[0])),
    "key: expected at most 20971520": _call(
        **_broken_prefix("") | dict.fromkeys(("key", "value"), _list((B, KV, 20971519, E)))
    ),
    "valueAntiquantMode: expected 2": _one(keyAntiquantMode=2),
    "key: expected at most 65535 elements": _paged(
        numHeads=256, numKeyValueHeads=256, key=WIDE, value=WIDE, softmaxLse=T(D.FLOAT, (B, 256, Q, 1))
    )
    | dict.fromkeys(("query", "attentionOut"), T(D.FLOAT16, (B, 256, Q, 512))),
}


PACKED_ERRORS: Mapping[str, Arguments] = {
    r"actualSeqLengthsOptional: expected ends of samples that increase to 4 .*, got \[1, 3\]": {LENGTHS[0]: (1, 3)},
    r"actualSeqLengthsKvOptional: expected 2 ends of samples that increase to 9": {LENGTHS[1]: (9,)},
    r"actualSeqLengthsKvOptional: .*, got \[10, 9\]": {LENGTHS[1]: (10, 9)},
    "key: expected 1 tensor": dict.fromkeys(("key", "value"), (T(D.FLOAT16, (9, KV, E)),) * 2),
    "sparseMode: expected 3 or 4, or 0 without": {"attenMaskOptional": T(D.BOOL, (4, 9))},
}


@pytest.mark.parametrize("text", PACKED_ERRORS)
def test_samples_in_a_row_that_are_rejected(text: str) -> None:
    prepare(BY_NAME[V4], described(owned(V4, _packed())), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=text) as caught:
        prepare(BY_NAME[V4], described(owned(V4, _packed(**PACKED_ERRORS[text]))), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


@pytest.mark.parametrize("text", ERRORS)
def test_errors_state_the_reason(text: str) -> None:
    with pytest.raises(AclnnError, match=text) as caught:
        prepare(BY_NAME[NAME], described(owned(NAME, ERRORS[text])), Product.ATLAS_A2)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


def test_pages_need_no_alignment_for_one_query() -> None:
    pages = _paged(16, query=T(D.FLOAT16, (B, N, 1, E)), attentionOut=T(D.FLOAT16, (B, N, 1, E)))
    pages |= {"softmaxLse": T(D.FLOAT, (B, N, 1, 1)), "actualSeqLengthsKvOptional": (20, 9)}
    prepare(BY_NAME[NAME], described(owned(NAME, pages)), Product.ATLAS_A3)


@pytest.mark.parametrize("mode", [0, 3])
def test_v5_obeys_lengths_and_sparse_mode_for_one_query(mode: int) -> None:
    given = Given(17, queries=1)
    mask = given.random.random((1, 1, K)) < 0.5 if mode == 0 else np.ones((2048, 2048), bool)
    given_mode = {"sparseMode": mode, "attenMaskOptional": mask, LENGTHS[0]: (1, 0), "nextTokens": 2}
    found = computed(given.q, [given.k], [given.v], of=V5, queries=1, product=Product.ASCEND_950, **given_mode)
    masked = mask | (np.arange(K) > 2) if mode == 0 else _rule(mode, 1, K, 0, 0)
    assert_close(found, given.expected((slice(1), slice(0)), masked=masked))


@pytest.mark.parametrize("kind", [2, 3])
@pytest.mark.parametrize("starts", [(), (3,)])
def test_v5_multiplies_slopes_by_distances(starts: tuple[int, ...], kind: int) -> None:
    """The example of aclnnFusedInferAttentionScoreV5 has such slopes."""
    given = Given(18, queries=K)
    slopes = np.array([0.5, 0.25, 0.125, 2], np.float32)
    far = np.abs(np.arange(K)[:, None] - np.arange(K) + (starts or (0,))[0] - 1)
    more: Arguments = {"pseType": kind, "pseShiftOptional": slopes, "kvStartIdxOptional": (1,)}
    found = computed(
        *(given.q, [given.k], [given.v]),
        **more | {"qStartIdxOptional": starts},
        of=V5,
        queries=K,
        product=Product.ASCEND_950,
    )
    assert_close(found, given.expected(bias=-slopes[:, None, None] * (far if kind == 2 else np.sqrt(far))))


def _sloped(**change: Any) -> Arguments:
    query = T(D.FLOAT16, (B, N, K, E))
    given = {"query": query, "attentionOut": query, "pseType": 2, "pseShiftOptional": T(D.FLOAT, (N,))}
    return _call(**given, softmaxLse=T(D.FLOAT, (B, N, K, 1)), attenMaskOptional=None) | change


def _blocks_of(elements: int, queries: int, size: int) -> Arguments:
    query, keys = T(D.FLOAT16, (B, N, queries, elements)), _list((3, KV, size, elements))
    given = {"query": query, "attentionOut": query, "softmaxLse": T(D.FLOAT, (B, N, queries, 1))}
    return _paged(size, key=keys, value=keys, actualSeqLengthsKvOptional=(9,), inputLayout="BNSD", **given)


@pytest.mark.parametrize(
    ("elements", "queries", "step", "most"),
    [(64, Q, 16, 1024), (128, 1, 16, 1024), (32, Q, 128, 1024), (32, 1, 16, 512)],
)
def test_v5_limits_block_size(elements: int, queries: int, step: int, most: int) -> None:
    for size in (step, most):
        prepare(BY_NAME[V5], described(_blocks_of(elements, queries, size)), Product.ASCEND_950)
    for size in (step // 2, most + step):
        with pytest.raises(AclnnError, match=f"blockSize: expected a multiple of {step} from {step} to {most}"):
            prepare(BY_NAME[V5], described(_blocks_of(elements, queries, size)), Product.ASCEND_950)


def test_v5_accepts_any_number_of_heads_and_elements() -> None:
    query, keys = T(D.FLOAT16, (B, 300, Q, 15)), _list((B, 1, K, 15))
    given = {"query": query, "attentionOut": query, "key": keys, "value": keys, "numHeads": 300, "numKeyValueHeads": 1}
    call = _call(**given, softmaxLse=T(D.FLOAT, (B, 300, Q, 1)), pseShiftOptional=None)
    prepare(BY_NAME[V5], described(call), Product.ASCEND_950)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (r"attenMaskOptional: expected shape \[1, 3, 5\]", _call(attenMaskOptional=T(D.BOOL, (Q, K)))),
        (f"{SINK}: expected none with an innerPrecise of 1", _sunk(innerPrecise=1)),
        (r"pseShiftOptional: expected shape \[4\]", _sloped(pseShiftOptional=T(D.FLOAT, (1,)))),
        ("pseShiftOptional: expected as many keys as queries", _sloped(actualSeqLengthsKvOptional=(K, 2))),
        (
            f"pseShiftOptional: expected no slopes with {PADDINGS[0]}",
            _sloped(**{PADDINGS[0]: T(D.INT64, (1,))}),
        ),
        (
            "query: expected heads of a multiple of 16",
            _call(query=T(D.FLOAT16, (B, N, Q, 15)), inputLayout="BNSD_BSND"),
        ),
    ],
)
def test_v5_rejects_invalid_arguments(text: str, call: Arguments) -> None:
    with pytest.raises(AclnnError, match=text) as caught:
        prepare(BY_NAME[V5], described(call), Product.ASCEND_950)
    assert caught.value.code == ACLNN_ERR_INNER_TILING_ERROR


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD", "BNSD_BSND"])
def test_prompt_attention_takes_one_tensor_of_keys(layout: str) -> None:
    given = Given(12)
    q, k, v = (laid_out(x, layout.partition("_")[0]) for x in (given.q, given.k, given.v))
    more = dict(zip(LENGTHS, ((2, 3), (4,)), strict=True))
    found, _ = computed(q, [k], [v], layout, of=PROMPT, nextTokens=0, **more)
    expected = given.expected((slice(2), slice(3)), (slice(4), slice(4)))[0]
    np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-18)


@pytest.mark.parametrize("mode", [0, 2, 3])
def test_prompt_attention_obeys_lengths_and_sparse_mode_for_one_query(mode: int) -> None:
    given = Given(13, queries=1)
    mask = given.random.random((1, K)) < 0.5 if mode == 0 else np.ones((2048, 2048), bool)
    given_mode = {"sparseMode": mode, "attenMaskOptional": mask, LENGTHS[0]: (1, 0), "nextTokens": 2}
    found, _ = computed(given.q, [given.k], [given.v], of=PROMPT, queries=1, **given_mode)
    masked = mask | (np.arange(K) > 2) if mode == 0 else _rule(mode, 1, K, 0, 0)
    expected = given.expected((slice(1), slice(0)), masked=masked)[0]
    np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-18)


def test_prompt_attention_accepts_heads_of_any_size_for_few_samples() -> None:
    def call(samples: int) -> Mapping[str, Any]:
        query, key = T(D.FLOAT16, (samples, N, Q, 15)), (T(D.FLOAT16, (samples, KV, K, 15)),)
        more = {"attentionOut": query, "value": key, "pseShiftOptional": None, "attenMaskOptional": None}
        return described(owned(PROMPT, _call(query=query, key=key, **more)))

    prepare(BY_NAME[PROMPT], call(128), Product.ATLAS_A2)
    with pytest.raises(AclnnError, match="query: expected heads of a multiple of 16"):
        prepare(BY_NAME[PROMPT], call(129), Product.ATLAS_A2)


@pytest.mark.parametrize("layout", ["BSH", "BSND", "BNSD"])
def test_incremental_attention_takes_padding_and_masks(layout: str) -> None:
    given = Given(14, queries=1)
    mask = given.random.random((B, K)) < 0.3
    mask[:, 1] = False
    q, k, v = (laid_out(x, layout) for x in (given.q, given.k, given.v))
    own: dict[str, Any] = {"of": INCREMENT, "queries": 1, "attenMaskOptional": mask, LENGTHS[1]: (4, 2)}
    for starts, padding in (((0, 0), None), ((0, 0), []), ((0, 2), [1]), ((1, 3), [0])):
        own["kvPaddingSizeOptional"] = None if padding is None else np.array(padding, np.int64)
        found, _ = computed(q, [k], [v], layout, **own)
        spans = [slice(at, at + length) for at, length in zip(starts, own[LENGTHS[1]], strict=True)]
        expected = given.expected(keys=spans, masked=mask[:, None, None])[0]
        np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-18)


def test_incremental_attention_reads_pages() -> None:
    given, size = Given(15, 1, 48), 16
    table = np.array([[3, 1, 4], [0, -7, -7]], np.int32)
    pages = [given.random.normal(size=(5, KV, size, E)).astype(np.float16) for _ in range(2)]
    for x, cache in zip((given.k, given.v), pages, strict=True):
        for at, block, page in ((0, 0, 3), (0, 1, 1), (0, 2, 4), (1, 0, 0)):
            cache[page] = x[at, :, block * size : (block + 1) * size]
    own: dict[str, Any] = {
        "of": INCREMENT,
        "queries": 1,
        "blockTableOptional": table,
        "blockSize": size,
        LENGTHS[1]: (40, 9),
    }
    found, _ = computed(given.q, [pages[0]], [pages[1]], **own)
    expected = given.expected(keys=(slice(40), slice(9)))[0]
    np.testing.assert_allclose(found, expected, rtol=2.0**-10, atol=2.0**-18)
