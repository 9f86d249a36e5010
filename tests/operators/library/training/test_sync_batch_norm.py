"""BatchNorm in steps, over several ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.execution.executor import prepare
from aclnn.operators.library.training import sync_batch_norm
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, TRAINED, Array, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

IMAGES, CHANNELS, RANKS = (2, 3, 5, 4), (3,), (2, 3)
ELEMENTS = 40
EPS = 0.5
STATS, ELEMT, ELEMT_BACKWARD = "batch_norm_stats", "batch_norm_elemt", "batch_norm_elemt_backward"
REDUCE, REDUCE_BACKWARD = "batch_norm_reduce", "batch_norm_reduce_backward"
GATHER, GATHER_SUMS = "batch_norm_gather_stats_with_counts", "sync_batch_norm_gather_stats"


def _of_channels(d: D, names: str) -> Arguments:
    return {name: T(d, CHANNELS) for name in names.split()}


def _planes(d: D) -> T:
    return T(d, IMAGES, format=Format.FORMAT_NCHW)


CALLS: Mapping[str, Callable[[D], Arguments]] = {
    STATS: lambda d: {"input": T(d, IMAGES), "eps": EPS, **_of_channels(D.FLOAT, "mean invstd")},
    ELEMT: lambda d: {
        "input": T(d, IMAGES),
        **_of_channels(d, "weight bias mean invstd"),
        "eps": EPS,
        "output": T(d, IMAGES),
    },
    ELEMT_BACKWARD: lambda d: {
        **{name: T(d, IMAGES) for name in ("gradOut", "input", "gradInput")},
        **_of_channels(d, "mean invstd weight sumDy sumDyXmu"),
        "counter": T(D.INT32, (2,)),
    },
    REDUCE_BACKWARD: lambda d: {
        **{name: T(d, IMAGES) for name in ("gradOut", "input")},
        **_of_channels(d, "mean invstd weight sumDy sumDyXmu gradWeight gradBias"),
        **dict.fromkeys(("inputG", "weightG", "biasG"), True),
    },
    GATHER: lambda d: {
        "input": T(d, IMAGES),
        **{name: T(d, RANKS) for name in ("mean", "invstd")},
        **_of_channels(d, "runningMean runningVar meanAll invstdAll"),
        "momentum": 0.25,
        "eps": EPS,
        "counts": T(d, (2,)),
    },
    REDUCE: lambda d: {"x": _planes(d), **_of_channels(D.FLOAT, "sum squareSum")},
    GATHER_SUMS: lambda d: {
        **{name: T(d, RANKS) for name in ("totalSum", "totalSquareSum")},
        "sampleCount": T(D.INT32, (2,)),
        **_of_channels(d, "mean variance batchMean batchInvstd"),
        "momentum": 0.25,
        "eps": EPS,
    },
}


def _rows(x: Any) -> Any:
    """Channels in rows."""
    return wide(x).transpose(0, 1).flatten(1)


def _stats(a: Mapping[str, Any]) -> Any:
    variance, mean = torch.var_mean(_rows(a["input"]), 1, correction=0)
    return mean, (variance + EPS).rsqrt()


def _norm(a: Mapping[str, Any]) -> Any:
    mean, weight, bias = (wide(a[name]) for name in ("mean", "weight", "bias"))
    variance = 1 / wide(a["invstd"]) ** 2
    return torch.nn.functional.batch_norm(wide(a["input"]), mean, variance, weight, bias, eps=0.0)


def _elemt_backward(a: Mapping[str, Any]) -> Any:
    """By automatic differentiation of what is normalised, its mean and variance, whose gradients are given."""
    dy, x = _rows(a["gradOut"]), _rows(a["input"])
    mean, invstd, weight, total, dot = (
        wide(a[name])[:, None] for name in ("mean", "invstd", "weight", "sumDy", "sumDyXmu")
    )
    leaf = x.clone().requires_grad_()
    through_mean = leaf * (-total * invstd * weight / a["counter"].sum())
    through_variance = (leaf - mean) ** 2 / 2 * (-dot * invstd**3 * weight / a["counter"].sum())
    whole = (dy * (leaf - mean) * invstd * weight + through_mean + through_variance).sum()
    (found,) = torch.autograd.grad(whole, leaf)
    return found.reshape(3, 2, 5, 4).transpose(0, 1)


def _reduce_backward(a: Mapping[str, Any]) -> Any:
    dy, centred = _rows(a["gradOut"]), _rows(a["input"]) - wide(a["mean"])[:, None]
    dot = torch.linalg.vecdot(dy, centred)
    return dy.sum(1), dot, dot * wide(a["invstd"]), dy.sum(1)


def _moved(a: Mapping[str, Any], names: tuple[str, str], first: Any, second: Any, count: Any) -> Any:
    """Running statistics, and the batch's from its first and second moments."""
    variance = second - first**2
    mean, var = (wide(a[name]) for name in names)
    moved = torch.lerp(mean, first, 0.25), torch.lerp(var, variance * count / (count - 1), 0.25)
    return *moved, first, (variance + EPS).rsqrt()


def _gather(a: Mapping[str, Any]) -> Any:
    mean, invstd, counts = (wide(a[name]) for name in ("mean", "invstd", "counts"))
    shares = counts[:, None] / counts.sum()
    second = (shares * (invstd**-2 - EPS + mean**2)).sum(0)
    return _moved(a, ("runningMean", "runningVar"), (shares * mean).sum(0), second, counts.sum())


def _gather_sums(a: Mapping[str, Any]) -> Any:
    count = a["sampleCount"].sum()
    first, second = (wide(a[name]).sum(0) / count for name in ("totalSum", "totalSquareSum"))
    return _moved(a, ("mean", "variance"), first, second, count)


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    STATS: _stats,
    ELEMT: _norm,
    ELEMT_BACKWARD: _elemt_backward,
    REDUCE_BACKWARD: _reduce_backward,
    GATHER: lambda a: _gather(a)[2:],
    GATHER_SUMS: lambda a: _gather_sums(a)[2:],
}


def numbers(operator: str, name: str, array: Array) -> Array:
    """Counts and reciprocal deviations above 0; moderate numbers where 16-bit results are sums."""
    if name in ("invstd", "runningVar", "variance"):
        return np.abs(array) / 16 + 0.25
    if name in ("counter", "counts", "sampleCount"):
        return np.array([ELEMENTS, 24])
    return np.abs(array) + 400 if name == "totalSquareSum" else array


_EMPTY = {"shape": (0, 3, 5)}


def _a_channel(operator: Any, name: str) -> Break:
    none = {each: {"shape": (2, 0)} for each, given in CALLS[operator.name](D.FLOAT).items() if _is_planes(given)}
    return Break(none, "a channel")


def _is_planes(given: Any) -> bool:
    return isinstance(given, T) and given.shape == IMAGES


BREAKS: Mapping[str, Breaking] = {
    "data type": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
    "same data type as input": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as totalSum": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "same data type as batchMean": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "2 to 8 dimensions": lambda o, name: Break(shape((3,), name), "2 to 8"),
    "0 to 8 dimensions": lambda o, name: Break(shape((1,) * 9, name), "0 to 8"),
    "2 dimensions": lambda o, name: Break(shape((3,), name), "2 dimensions"),
    "4 dimensions": lambda o, name: Break(shape((2, 3, 5), name), "4 dimensions"),
    "a channel": _a_channel,
    "a rank": lambda o, name: Break(
        shape((0, 3), "totalSum", "totalSquareSum") | shape((0,), "sampleCount"), "at least 1 row"
    ),
    "shape is one for each channel": lambda o, name: Break(shape((4,), name), "[3]"),
    "shape is one for each rank": lambda o, name: Break(shape((4,), name), "[2]"),
    "shape is (ranks, C)": lambda o, name: Break(shape((2, 4), name), "[2, 3]"),
    "same shape as input": lambda o, name: Break(shape((2, 3, 4), name), "[2, 3, 5, 4]"),
    "same shape as totalSum": lambda o, name: Break(shape((2, 4), name), "[2, 3]"),
    "format ACL_FORMAT_NCHW": lambda o, name: Break({name: {"format": Format.FORMAT_ND}}, "ACL_FORMAT_NCHW"),
}


class TestSyncBatchNorm(LibraryTests):
    subject = Subject(
        sync_batch_norm.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        default=TRAINED,
        # On Atlas A2 two of them take no bfloat16.
        dtypes=dict.fromkeys((STATS, GATHER_SUMS), (D.FLOAT, D.FLOAT16)),
        empty={
            STATS: {"input": _EMPTY, "mean": {"shape": (3,)}, "invstd": {"shape": (3,)}},
            ELEMT: {"input": _EMPTY, "output": _EMPTY} | shape((3,), "weight", "bias", "mean", "invstd"),
            ELEMT_BACKWARD: dict.fromkeys(("gradOut", "input", "gradInput"), _EMPTY)
            | shape((3,), "mean", "invstd", "weight", "sumDy", "sumDyXmu"),
            REDUCE_BACKWARD: dict.fromkeys(("gradOut", "input"), _EMPTY)
            | shape((3,), "mean", "invstd", "sumDy", "sumDyXmu", "gradWeight", "gradBias"),
            GATHER: {"input": _EMPTY, "counts": {"shape": (0,)}}
            | shape((3,), "runningMean", "runningVar", "meanAll", "invstdAll"),
            REDUCE: {"x": {"shape": (0, 3, 5, 4)}, "sum": {"shape": (3,)}, "squareSum": {"shape": (3,)}},
            GATHER_SUMS: shape((2, 0), "totalSum", "totalSquareSum")
            | shape((2,), "sampleCount")
            | shape((0,), "mean", "variance", "batchMean", "batchInvstd"),
        },
        elsewhere=(REDUCE,),
        breaks=BREAKS,
        numbers=numbers,
        terms=ELEMENTS,
    )


def _run(name: str, product: Product = Product.ATLAS_A2, **arguments: Any) -> dict[str, Array]:
    placed = {key: Placed(each, "contiguous") for key, each in arguments.items() if isinstance(each, np.ndarray)}
    prepare(BY_NAME[name], arguments | {key: each.tensor for key, each in placed.items()}, product).run()
    return {key: each.view for key, each in placed.items()}


def _sevens(*of: int) -> Array:
    return np.full(of, 7, np.float32)


def test_statistics_of_empty_tensors_are_nan_or_zero() -> None:
    found = _run(STATS, input=np.empty((0, 2, 3), np.float32), eps=1e-5, mean=_sevens(2), invstd=_sevens(2))
    assert found["mean"].tolist() == [0, 0]
    assert np.isnan(found["invstd"]).all()
    placed = Placed(np.empty((0, 2, 3, 3), np.float32), "contiguous").tensor
    found = _run(REDUCE, x=placed, sum=_sevens(2), squareSum=_sevens(2))
    assert found["sum"].tolist() == found["squareSum"].tolist() == [0, 0]


@pytest.mark.parametrize("layout", ["contiguous", "reversed with holes"])
def test_reduce_sums_planes_of_each_channel(layout: str) -> None:
    x = Placed(np.random.default_rng(3).normal(size=IMAGES).astype(np.float32), layout)
    x.tensor.format = Format.FORMAT_NCHW
    found = _run(REDUCE, x=x.tensor, sum=_sevens(3), squareSum=_sevens(3))
    rows = _rows(torch.from_numpy(x.view.copy()))
    np.testing.assert_allclose(found["sum"], rows.sum(1), rtol=1e-6)
    np.testing.assert_allclose(found["squareSum"], (rows**2).sum(1), rtol=1e-6)


@pytest.mark.parametrize("asked", ["inputG", "weightG", "biasG"])
def test_unrequested_outputs_may_be_null(asked: str) -> None:
    outputs = {"inputG": ("sumDy", "sumDyXmu"), "weightG": ("gradWeight",), "biasG": ("gradBias",)}
    flags = {flag: flag == asked for flag in outputs}
    wanted = {name: _sevens(1) if flag == asked else None for flag, names in outputs.items() for name in names}
    dy, x = np.array([[1.0], [2.0]], np.float32), np.array([[3.0], [5.0]], np.float32)
    of_channel = {"mean": np.full(1, 1, np.float32), "invstd": np.full(1, 0.5, np.float32), "weight": None}
    found = _run(REDUCE_BACKWARD, gradOut=dy, input=x, **of_channel, **flags, **wanted)
    expected = {"sumDy": 3, "sumDyXmu": 10, "gradWeight": 5, "gradBias": 3}
    assert {name: found[name].item() for name in outputs[asked]} == {name: expected[name] for name in outputs[asked]}


def test_ranks_together_have_the_statistics_of_all_elements() -> None:
    random = np.random.default_rng(5)
    x = random.normal(3, 2, (6, 2, 7)).astype(np.float32)
    parts = x[:2], x[2:]
    moments = [_run(STATS, input=part, eps=1e-3, mean=_sevens(2), invstd=_sevens(2)) for part in parts]
    gathered = _run(
        GATHER,
        input=parts[0],
        **{name: np.stack([each[name] for each in moments]) for name in ("mean", "invstd")},
        runningMean=None,
        runningVar=None,
        momentum=0.1,
        eps=1e-3,
        counts=np.array([14, 28], np.float32),
        meanAll=_sevens(2),
        invstdAll=_sevens(2),
    )
    whole = _run(STATS, input=x, eps=1e-3, mean=_sevens(2), invstd=_sevens(2))
    np.testing.assert_allclose(gathered["meanAll"], whole["mean"], rtol=1e-6)
    np.testing.assert_allclose(gathered["invstdAll"], whole["invstd"], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "moved", "reference"),
    [(GATHER, ("runningMean", "runningVar"), _gather), (GATHER_SUMS, ("mean", "variance"), _gather_sums)],
)
def test_running_statistics_move_towards_the_batchs(name: str, moved: tuple[str, str], reference: Any) -> None:
    random = np.random.default_rng(4)
    call = CALLS[name](D.FLOAT)
    arrays = {
        key: numbers(name, key, random.normal(size=each.shape)).astype(each.dtype.numpy)
        for key, each in call.items()
        if isinstance(each, T)
    }
    expected = reference({key: torch.from_numpy(each) for key, each in arrays.items()})
    found = _run(name, **call | arrays)
    for key, each in zip(moved, expected, strict=False):
        assert not np.array_equal(found[key], arrays[key])
        np.testing.assert_allclose(found[key], each, rtol=1e-6)
