"""Streams of a layer with one another, and Sinkhorn's scaling of the matrices that mix them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import hyper_connections
from tests.cases.table import NO_KERNEL, NULL, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, Break, Breaking, LibraryTests, Subject, computed, described, torch, wide

SINKHORN, SINKHORN_BACK, POST, POST_BACK = (
    f"mhc_{name}" for name in ("sinkhorn", "sinkhorn_backward", "post", "post_backward")
)
PRE, PRE_V2, PRE_BACK = "mhc_pre", "mhc_pre_v2", "mhc_pre_backward"
STEPS, EPS = 3, 1e-6
MATRICES, STREAMS = (5, 4, 4), (2, 4, 128)


def _post(d: D) -> Arguments:
    return {
        "x": T(d, STREAMS),
        "hRes": T(D.FLOAT, (2, 4, 4)),
        "hOut": T(d, (2, 128)),
        "hPost": T(D.FLOAT, (2, 4)),
    }


def _pre_back(d: D, width: int = 128) -> Arguments:
    halves = {**dict.fromkeys(("x", "gradX", "gradXPostOptional"), (2, 4, width)), "gradHIn": (2, width)}
    floats = {
        **dict.fromkeys(("phi", "gradPhi"), (24, 4 * width)),
        **dict.fromkeys(("alpha", "gradAlpha"), (3,)),
        **dict.fromkeys(("gradHPost", "hPre", "hPost"), (2, 4)),
        **dict.fromkeys(("gamma", "gradGamma"), (4, width)),
        "gradHRes": (2, 4, 4),
        "invRms": (2,),
        "hMix": (2, 24),
        "gradBias": (24,),
    }
    tensors = {name: T(d, of) for name, of in halves.items()} | {name: T(D.FLOAT, of) for name, of in floats.items()}
    return tensors | {"hcEps": 0.25}


def _pre_back_shapes(width: int) -> Mapping[str, Any]:
    return {of: {"shape": value.shape} for of, value in _pre_back(D.FLOAT, width).items() if isinstance(value, T)}


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    PRE_BACK: _pre_back,
    SINKHORN: lambda d: {
        **{name: T(d, MATRICES) for name in ("x", "output")},
        "eps": EPS,
        "numIters": STEPS,
        "normOut": T(d, (2 * STEPS, 4, 4, 5)),
        "sumOut": T(d, (2 * STEPS, 4, 5)),
    },
    SINKHORN_BACK: lambda d: {
        **{name: T(d, MATRICES) for name in ("gradOutput", "out")},
        "normOut": T(d, (2 * STEPS, 5, 4, 8)),
        "sumOut": T(d, (2 * STEPS, 5, 8)),
    },
    PRE: lambda d: {
        "x": T(d, STREAMS),
        "phi": T(D.FLOAT, (24, 512)),
        "alpha": T(D.FLOAT, (3,)),
        "bias": T(D.FLOAT, (24,)),
        "gammaOptional": T(D.FLOAT, (4, 128)),
        "normEps": EPS,
        "hcEps": EPS,
        "hIn": T(d, (2, 128)),
        "hPost": T(D.FLOAT, (2, 4)),
        "hRes": T(D.FLOAT, (2, 4, 4)),
        "invRmsOptional": T(D.FLOAT, (2,)),
        "hMixOptional": T(D.FLOAT, (2, 24)),
        "hPreOptional": T(D.FLOAT, (2, 4)),
    },
    PRE_V2: lambda d: CALLS[PRE](d) | {"opImplMode": 0},
    POST: lambda d: _post(d) | {"out": T(d, STREAMS)},
    POST_BACK: lambda d: (
        _post(d)
        | {"gradOutput": T(d, STREAMS)}
        | {f"grad{name[0].upper()}{name[1:]}": of for name, of in _post(d).items()}
    ),
}


def _steps_of(x: Any, steps: int = STEPS) -> tuple[Any, Any]:
    norms, sums = [x.softmax(-1) + EPS], [torch.ones(x.shape[:-1])]
    for step in range(1, 2 * steps):
        total = norms[-1].sum(-2 if step % 2 else -1, keepdim=True) + EPS
        norms.append(norms[-1] / total)
        sums.append(total.flatten(-2))
    return torch.stack(norms), torch.stack(sums)


def _scaled(a: Mapping[str, Any]) -> Any:
    norms, sums = _steps_of(wide(a["x"]))
    return norms[-1], norms.permute(0, 2, 3, 1), sums.permute(0, 2, 1)


def _scaled_back(a: Mapping[str, Any]) -> Any:
    """Through any results and sums, as random ones are nobody's."""
    norms, sums, grad = wide(a["normOut"])[..., :4], wide(a["sumOut"])[..., :4], wide(a["gradOutput"])
    for step in range(2 * STEPS - 1, 0, -1):
        along = -2 if step % 2 else -1
        grad = (grad - (grad * norms[step]).sum(along, keepdim=True)) / sums[step].unsqueeze(along)
    return (grad - (grad * norms[0]).sum(-1, keepdim=True)) * norms[0]


def _decided(a: Mapping[str, Any], matrices: tuple[int, ...] = (4, 4)) -> Any:
    x = wide(a["x"])
    rms = x.square().mean((-1, -2)).add(EPS).rsqrt()
    mix = (x * a["gammaOptional"]).flatten(-2) @ wide(a["phi"]).T
    kinds = (4, 4, math.prod(matrices))
    numbers, bias = (mix * rms[:, None]).split(kinds, -1), a["bias"].split(kinds)
    pre, post, res = (each * factor + added for each, factor, added in zip(numbers, a["alpha"], bias, strict=True))
    pre = pre.sigmoid() + EPS
    enters = torch.einsum("bi,bid->bd", pre, x)
    return enters, 2 * post.sigmoid(), res.unflatten(-1, matrices), rms, mix, pre


def _undecided(a: Mapping[str, Any]) -> Any:
    """The document's steps, of any numbers that are kept, with the mean of squares of x itself."""
    x, rms, mix, of_in = (a[name].double() for name in ("x", "invRms", "hMix", "gradHIn"))
    share, post = a["hPre"].double() - 0.25, a["hPost"].double()
    pre_grad = torch.einsum("bd,bnd->bn", of_in, x) * share * (1 - share)
    post_grad = a["gradHPost"].double() * post * (1 - post / 2)
    parts = (pre_grad, post_grad, a["gradHRes"].double().flatten(-2))
    normed = (mix * rms[:, None]).split((4, 4, 16), -1)
    alpha_grad = torch.stack([(grad * number).sum() for grad, number in zip(parts, normed, strict=True)])
    arriving = torch.cat([grad * factor for grad, factor in zip(parts, a["alpha"].double(), strict=True)], -1)
    mix_grad, rms_grad = arriving * rms[:, None], (arriving * mix).sum(-1)
    rows_grad = (mix_grad @ a["phi"].double()).unflatten(-1, (4, 128))
    through_rms = (rms_grad * rms**3 / 512)[:, None, None] * x
    x_grad = of_in[:, None] * a["hPre"].double()[..., None] + rows_grad * a["gamma"] - through_rms
    return (
        x_grad + a["gradXPostOptional"].double(),
        mix_grad.T @ (x * a["gamma"]).flatten(-2),
        alpha_grad,
        torch.cat(parts, -1).sum(0),
        (x * rows_grad).sum(0),
    )


def _connected(x: Any, res: Any, out: Any, post: Any) -> Any:
    return torch.einsum("bij,bid->bjd", res, x) + torch.einsum("bj,bd->bjd", post, out)


def _streams(a: Mapping[str, Any]) -> list[Any]:
    return [wide(a[name]).requires_grad_() for name in ("x", "hRes", "hOut", "hPost")]


def _gradients(a: Mapping[str, Any]) -> Any:
    given = _streams(a)
    return torch.autograd.grad(_connected(*given), given, wide(a["gradOutput"]))


BREAKS: Mapping[str, Breaking] = {
    "no private format": lambda o, name: Break({name: {"format": Format.FORMAT_FRACTAL_NZ}}, "ACL_FORMAT_ND"),
    "same format as x": lambda o, name: Break(
        {name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND", product=Product.ASCEND_950
    ),
    "data type": lambda o, name: Break(dtype(D.INT8, name), "ACL_FLOAT"),
    "same data type as x": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "same data type as gradOutput": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_FLOAT16"),
    "3 to 4 dimensions": lambda o, name: Break(
        shape((4, 4), name, *(other for other in ("output",) if o.name == SINKHORN)), "3 to 4"
    ),
    "same shape as x": lambda o, name: Break(
        shape((2, 4, 1), name), "[5, 4, 4]" if "sinkhorn" in o.name else "[2, 4, 128]"
    ),
    "same shape as gradOutput": lambda o, name: Break(shape((5, 4, 1), name), "[5, 4, 4]"),
    "shape is that with x": lambda o, name: Break(
        shape((2, 3), name), "[2, 4" if name not in ("hOut", "gradHOut") else "[2, 128]"
    ),
    "matrices of 4, 6 or 8 rows and columns": lambda o, name: Break(
        shape((5, 4, 6), *("x", "output") if name == "x" else (name, "out")), "4, 6 or 8"
    ),
    "from 1 to 100": lambda o, name: Break({name: 101}, "from 1 to 100"),
    "both or neither": lambda o, name: Break({name: None}, "room for all steps"),
    "not empty": lambda o, name: Break(
        {
            of: {"shape": (0, *value.shape[1:])}
            for of, value in CALLS[o.name](D.FLOAT).items()
            if isinstance(value, T) and (of == name or o.name != PRE_BACK)
        },
        "expected elements",
    ),
    "room for all steps": lambda o, name: Break(shape((7,), name), "elements (of rows of 8)"),
    "of whole steps": lambda o, name: Break(shape((7,), name), "from 1 to 100 times 320"),
    "of as many steps": lambda o, name: Break(shape((7,), name), "240 elements"),
    "matrices of three kinds": lambda o, name: Break({name: None}, "an object with alpha of 3"),
    "shape [2] or [3]": lambda o, name: Break(shape((4,), name), "[2] or [3]"),
    "streams that the product takes": lambda o, name: Break(
        shape((2, 4, 120), name), "a multiple of 16", product=Product.ASCEND_950
    ),
    "a row for each number": lambda o, name: Break(shape((25, 512), name), "[24, 512] or [32, 512]"),
    "shape is three": lambda o, name: Break(shape((2,), name), "[3]"),
    "shape is a number": lambda o, name: Break(shape((3,), name), "[2]"),
    "shape is as many numbers": lambda o, name: Break(shape((2, 23), name), "[2, 24]"),
    "same shape as phi": lambda o, name: Break(shape((24, 3), name), "[24, 512]"),
    "same shape as gamma": lambda o, name: Break(shape((4, 3), name), "[4, 128]"),
    "streams of whole vectors": lambda o, name: Break(
        _pre_back_shapes(96), "a multiple of 64", product=Product.ASCEND_950
    ),
    "shape is one for each number": lambda o, name: Break(shape((23,), name), "[24]"),
    "shape is that of streams": lambda o, name: Break(shape((4, 64), name), "[4, 128]"),
    "shape is one stream": lambda o, name: Break(shape((2, 64), name), "[2, 128]"),
    "shape is a number for each stream": lambda o, name: Break(shape((2, 3), name), "[2, 4]"),
    "shape is that of matrices": lambda o, name: Break(shape((2, 24), name), "[2, 4, 4]"),
    "shape is that kept for the gradient": lambda o, name: Break(shape((2, 3), name), "[2"),
    "streams with a kernel": lambda o, name: Break(
        _pre_back_shapes(64) if o.name == PRE_BACK else _narrow(o.name), "4 streams of a multiple of 128"
    ),
    "allowed value": lambda o, name: Break({name: 2}, "0 or 1"),
    "four streams": lambda o, name: Break(
        shape((2, 4, 64), name) if o.name in (PRE, PRE_V2) else _narrow(o.name), "4 streams of a multiple of 128"
    ),
    "4, 6 or 8 streams": lambda o, name: Break(_three(o.name), "4, 6 or 8", product=Product.ASCEND_950),
}


def _reshaped(name: str, streams: int, width: int) -> Mapping[str, Any]:
    of = {"Res": (2, streams, streams), "Out": (2, width), "Post": (2, streams)}
    return {
        each: {
            "shape": next((of[key] for key in of if each.endswith(f"H{key}") or each == f"h{key}"), (2, streams, width))
        }
        for each, value in CALLS[name](D.FLOAT).items()
        if isinstance(value, T)
    }


def _narrow(name: str) -> Mapping[str, Any]:
    return _reshaped(name, 4, 64)


def _three(name: str) -> Mapping[str, Any]:
    return _reshaped(name, 3, 128)


_TWO_KINDS = (
    shape((1, 4, 128), "x")
    | shape((8, 512), "phi")
    | shape((2,), "alpha")
    | shape((8,), "bias")
    | shape((1, 128), "hIn")
    | shape((1, 4), "hPost", "hPreOptional")
    | shape((1,), "hRes", "invRmsOptional")
    | shape((4, 128), "gammaOptional")
    | shape((1, 8), "hMixOptional")
)


class TestHyperConnections(LibraryTests):
    subject = Subject(
        hyper_connections.OPERATORS,
        calls=CALLS,
        references={
            SINKHORN: _scaled,
            SINKHORN_BACK: _scaled_back,
            PRE: _decided,
            PRE_V2: _decided,
            PRE_BACK: _undecided,
            POST: lambda a: _connected(*_streams(a)).detach(),
            POST_BACK: _gradients,
        },
        dtypes={SINKHORN: (D.FLOAT,), SINKHORN_BACK: (D.FLOAT,)},
        default=(D.FLOAT16, D.BF16),
        empty={
            POST: {name: {"shape": (0, *value.shape[1:])} for name, value in CALLS[POST](D.FLOAT16).items()},
            SINKHORN_BACK: shape((0, 4, 4), "gradOutput", "out") | shape((0,), "normOut", "sumOut"),
            # The others reject empty tensors.
            **{
                name: {of: {"shape": value.shape} for of, value in CALLS[name](D.FLOAT).items() if isinstance(value, T)}
                for name in (SINKHORN, POST_BACK)
            },
            PRE_BACK: _pre_back_shapes(128),
            PRE: _TWO_KINDS,
            PRE_V2: _TWO_KINDS,
        },
        breaks=BREAKS,
        numbers=lambda operator, name, array: (
            np.abs(array) + 1 if name == "sumOut" else array / 8 if operator == PRE_BACK else array
        ),
        codes={
            "streams with a kernel": NO_KERNEL,
            "streams of whole vectors": NO_KERNEL,
            "matrices of three kinds": NULL,
        },
        terms=8,
    )


@pytest.mark.parametrize(
    ("product", "width", "matrices"),
    [(Product.ASCEND_950, 64, (4, 4)), (Product.ATLAS_A2, 128, (4, 4)), (Product.ATLAS_A2, 128, (24,))],
    ids=["pairs on Ascend 950", "pairs on Atlas A2", "permutations"],
)
def test_gradients_follow_the_decisions_of_the_forward(product: Product, width: int, matrices: tuple[int, ...]) -> None:
    """By differentiation of the forward function, whose results are kept, without factors of x."""
    random = np.random.default_rng(3)
    numbers = 8 + math.prod(matrices)
    shapes = {"x": (3, 4, width), "phi": (numbers, 4 * width), "alpha": (3,), "bias": (numbers,)}
    given = {name: random.normal(size=of).astype(np.float32) / 4 for name, of in shapes.items()}
    given["x"] = given["x"].astype(np.float16)
    exact = {name: torch.from_numpy(each).double().requires_grad_() for name, each in given.items()}
    results = _decided(exact | {"gammaOptional": torch.ones(4, width)}, matrices)
    enters, post, res, rms, mix, pre = (each.detach().numpy().astype(np.float32) for each in results)
    arriving = [random.normal(size=each.shape).astype(np.float32) for each in (enters, post, res)]
    arriving[0] = arriving[0].astype(np.float16)
    expected = torch.autograd.grad(
        results[:3], [*exact.values()], [torch.from_numpy(each).double() for each in arriving]
    )
    call = {name: given[name] for name in ("x", "phi", "alpha")}
    call |= dict(zip(("gradHIn", "gradHPost", "gradHRes"), arriving, strict=True))
    call |= {"invRms": rms, "hMix": mix, "hPre": pre, "hPost": post}
    outs = {f"grad{name.capitalize()}": np.zeros_like(each) for name, each in given.items()}
    nothing = dict.fromkeys(("gamma", "gradXPostOptional", "gradGamma"))
    found = computed(PRE_BACK, call | outs | nothing | {"hcEps": EPS}, product)
    for name, of in zip(outs, expected, strict=True):
        np.testing.assert_allclose(found[name], of.numpy(), 2e-3, 2e-3)


def test_states_kept_in_rows_of_eight_give_the_gradients() -> None:
    """torch_npu keeps states without shape; six columns leave two elements of each row unused."""
    x, grad = np.random.default_rng(0).normal(size=(2, 2, 5, 6, 6)).astype(np.float32)
    kept = {"normOut": np.ones(6 * 10 * 6 * 8, np.float32), "sumOut": np.ones(6 * 10 * 8, np.float32)}
    given = {"x": x, "eps": EPS, "numIters": STEPS, "output": np.zeros_like(x)}
    found = computed(SINKHORN, given | kept, Product.ASCEND_950)
    back = {"gradOutput": grad, "out": np.zeros_like(x)} | {name: found[name] for name in kept}
    given_x = torch.from_numpy(x).double().requires_grad_()
    (expected,) = torch.autograd.grad(_steps_of(given_x)[0][-1], given_x, torch.from_numpy(grad).double())
    got = computed(SINKHORN_BACK, back, Product.ASCEND_950)["out"]
    np.testing.assert_allclose(got, expected.numpy(), 1e-4, 1e-5)


def test_optional_states_of_one_element_count_as_absent() -> None:
    """Both count as absent, like null."""
    x = np.zeros((2, 4, 4), np.float32)
    given = {"x": x, "eps": 0.0, "numIters": 1, "output": np.ones_like(x)}
    found = computed(SINKHORN, given | dict.fromkeys(("normOut", "sumOut"), np.full(1, 7, "f")), Product.ASCEND_950)
    assert (found["output"] == 0.25).all()
    assert (found["normOut"], found["sumOut"]) == (7, 7)


def test_two_alphas_leave_streams_unmixed() -> None:
    """torch_npu's npu_mhc_pre gives hRes of one number then."""
    random = np.random.default_rng(1)
    x = random.normal(size=(3, 6, 16)).astype(np.float16)
    phi = random.normal(size=(12, 96)).astype(np.float32)
    given = {"x": x, "phi": phi, "alpha": np.array([0.5, 2], np.float32), "bias": np.zeros(12, np.float32)}
    outs = {"hIn": np.zeros((3, 16), np.float16), "hPost": np.zeros((3, 6), np.float32), "hRes": np.ones(1, np.float32)}
    kept = dict.fromkeys(("gammaOptional", "invRmsOptional", "hMixOptional"))
    pre = {"hPreOptional": np.full((3, 6), 7, np.float32)}
    found = computed(PRE, given | outs | kept | pre | {"normEps": EPS, "hcEps": 0.25}, Product.ASCEND_950)
    wide_x = x.reshape(3, 96).astype(np.float64)
    numbers = wide_x @ phi.T / np.sqrt(np.square(wide_x).mean(-1, keepdims=True) + EPS)
    shares, post = (1 / (1 + np.exp(-numbers * factor)) for factor in (0.5, 2))
    np.testing.assert_allclose(found["hPost"], 2 * post[:, 6:] + 0.25, 1e-5)
    expected = ((shares[:, :6] + 0.25)[..., None] * x.astype(np.float64)).sum(1)
    np.testing.assert_allclose(found["hIn"], expected, 2e-3, 2e-3)
    assert found["hRes"].tolist() == [0]
    assert (found["hPreOptional"] == 7).all()  # it goes with the two others


def test_numbers_of_rows_depend_on_permutations_before_ascend_950() -> None:
    changes = {"phi": T(D.FLOAT, (32, 512)), "bias": T(D.FLOAT, (32,)), "hRes": T(D.FLOAT, (2, 24))}
    call = described(CALLS[PRE](D.FLOAT16) | changes | {"hMixOptional": T(D.FLOAT, (2, 32))})
    prepare(BY_NAME[PRE], call, Product.ATLAS_A2)
    with pytest.raises(AclnnError, match=r"phi: expected shape \[24, 512\], got \[32, 512\]"):
        prepare(BY_NAME[PRE], call, Product.ASCEND_950)


def test_post_accepts_unmixed_streams() -> None:
    """torch_npu's npu_mhc_post with None for h_res, on Ascend 950 alone."""
    random = np.random.default_rng(0)
    x, out = (random.normal(size=of).astype(np.float16) for of in ((3, 5, 7), (3, 7)))
    post = random.normal(size=(3, 5)).astype(np.float32)
    given = {"x": x, "hRes": None, "hOut": out, "hPost": post}
    found = computed(POST, given | {"out": np.zeros_like(x)}, Product.ASCEND_950)["out"]
    np.testing.assert_allclose(found, x + post[..., None] * out[:, None].astype(np.float32), 2e-3, 2e-3)
    with pytest.raises(AclnnError, match="hRes: expected an object, got null"):
        prepare(BY_NAME[POST], described(CALLS[POST](D.FLOAT16)) | {"hRes": None}, Product.ATLAS_A2)


def test_post_gradients_accept_unmixed_streams() -> None:
    x, out, grad = np.ones((2, 4, 3), np.float16), np.full((2, 3), 2, np.float16), np.full((2, 4, 3), 3, np.float16)
    given = {"gradOutput": grad, "x": x, "hRes": None, "hOut": out, "hPost": np.ones((2, 4), np.float32)}
    gradients = {"gradX": np.zeros_like(x), "gradHRes": np.zeros((2, 4, 4), np.float32)}
    further = {"gradHOut": np.zeros_like(out), "gradHPost": np.zeros((2, 4), np.float32)}
    found = computed(POST_BACK, given | gradients | further, Product.ASCEND_950)
    expected = {"gradX": 3, "gradHRes": 9, "gradHOut": 12, "gradHPost": 18}
    assert {name: np.unique(found[name]).tolist() for name in expected} == {name: [n] for name, n in expected.items()}
