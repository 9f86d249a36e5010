"""Products in MX formats that are added to sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_RUNTIME_ERROR, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from tests.cases.table import INVALID, NULL, Arguments, Change, T, dtype, shape
from tests.helpers.library import BY_NAME, Array, Break, LibraryTests, Subject, torch

AT_950 = Product.ASCEND_950
WHOLE, GROUPED = "quant_batch_matmul_inplace_add", "quant_grouped_matmul_inplace_add"
K, M, N = 70, 3, 4
ENDS = (33, 33, 70)
E4M3, E5M2, E8M0 = D.FLOAT8_E4M3FN, D.FLOAT8_E5M2, D.FLOAT8_E8M0
SCALES = ("x1Scale", "x2Scale", "scale1Optional", "scale2")
GROUP = 1 << 32 | 1 << 16 | 32
FORMAT_NZ: Change = {"format": Format.FORMAT_FRACTAL_NZ}


def whole(d: D) -> Arguments:
    given = {"x1": T(d, (K, M)), "x2": T(E5M2, (K, N)), "x1Scale": T(E8M0, (2, M, 2)), "x2Scale": T(E8M0, (2, N, 2))}
    return {**given, "yRef": T(D.FLOAT, (M, N)), "transposeX1": True, "transposeX2": False, "groupSize": GROUP}


def grouped(**change: Any) -> Arguments:
    tensors = {"x1": Tensor(E4M3, (M, K), (1, M)), "x2": Tensor(E5M2, (K, N)), "yRef": Tensor(D.FLOAT, (3, M, N))}
    tensors |= {"scale1Optional": Tensor(E8M0, (4, M, 2)), "scale2": Tensor(E8M0, (4, N, 2))}
    return {**tensors, "groupList": Tensor(D.INT64, (3,)), "groupListType": 0, "groupSize": 0, **change}


def product(left: Any, right: Any, scales: Sequence[Any], first: int = 0) -> Any:
    """Sum terms one after another; the scales of the first are in a row of their own."""
    total = torch.zeros(left.shape[0], right.shape[1], dtype=torch.float64)
    for k in range(len(right)):
        factors = [each.double()[first + k // 64, :, k // 32 % 2] for each in scales]
        total += torch.outer(left[:, k].double() * factors[0], right[k].double() * factors[1])
    return total


def whole_sum(a: Mapping[str, Any]) -> Any:
    return a["yRef"].double() + product(a["x1"].T, a["x2"], (a["x1Scale"], a["x2Scale"]))


def grouped_sums(a: Mapping[str, Any]) -> Any:
    scales = (a["scale1Optional"], a["scale2"])
    sums = [
        product(a["x1"][:, begin:end], a["x2"][begin:end], scales, begin // 64 + group)
        for group, (begin, end) in enumerate(pairwise((0, *ENDS)))
    ]
    return a["yRef"].double() + torch.stack(sums)


def numbers(name: str, argument: str, array: Array) -> Array:
    if argument not in SCALES:
        return array
    return (120 + np.arange(array.size, dtype=np.uint8) % 11).reshape(array.shape).view(array.dtype)


def at_950(change: Any, expected: str) -> Any:
    return lambda o, name: Break(change(o, name) if callable(change) else change, expected, product=AT_950)


class TestProducts(LibraryTests):
    subject = Subject(
        (BY_NAME[WHOLE],),
        calls={WHOLE: whole},
        references={WHOLE: whole_sum},
        default=(E4M3, E5M2),
        numbers=numbers,
        plain=(WHOLE,),
        terms=4,
        empty={WHOLE: {name: {"shape": t.shape} for name, t in whole(E4M3).items() if isinstance(t, T)}},
        breaks={
            "data type": at_950(lambda o, name: dtype(D.DOUBLE, name), "data type"),
            "format ACL_FORMAT_ND": at_950(lambda o, name: {name: FORMAT_NZ}, "ACL_FORMAT"),
            "no private format": at_950(lambda o, name: {name: FORMAT_NZ}, "ACL_FORMAT_ND"),
            "2 dimensions": at_950(lambda o, name: shape((3,), name), "2 dimensions"),
            "an object": at_950(lambda o, name: {name: None}, "an object"),
            "transposed": at_950(lambda o, name: {name: name == "transposeX2"}, "with strides"),
            "3 dimensions": at_950(lambda o, name: shape((2, 2), name), "3 dimensions"),
            "no dimension of 0": at_950(lambda o, name: shape((K, 0), name), "no dimension of 0"),
            "groups of 32": at_950({"groupSize": 32 << 16}, "1, 1 and 32"),
            "as many rows as x1": at_950({"x2": {"shape": (K + 1, N)}}, str(K)),
            "shape is the product": at_950({"yRef": {"shape": (N, M)}}, f"[{M}, {N}]"),
            "shape … (two for two blocks) in memory": at_950(
                lambda o, name: shape((2, 2, 2), name), "(two for two blocks) in memory"
            ),
        },
    )


@pytest.mark.parametrize(
    ("group", "taken"), [(0, True), (32, True), (1 << 32, True), (64, False), (2 << 32 | 32, False)]
)
def test_a_size_of_blocks_that_is_0_is_what_the_scales_have(group: int, taken: bool) -> None:
    arguments = {name: Tensor(t.dtype, t.shape) if isinstance(t, T) else t for name, t in whole(E4M3).items()}
    arguments |= {"x1": Tensor(E4M3, (128, M)), "x2": Tensor(E4M3, (128, N)), "groupSize": group}
    if taken:
        prepare(BY_NAME[WHOLE], arguments, AT_950)
        return
    with pytest.raises(AclnnError, match="groupSize: expected 1, 1 and 32"):
        prepare(BY_NAME[WHOLE], arguments, AT_950)


@pytest.mark.parametrize("turned", [(), ("x1",), ("x2",), ("x1Scale", "x2Scale"), ("x1", "x2", "x1Scale", "x2Scale")])
@pytest.mark.parametrize("k", [K, 1])
def test_transposed_views_are_what_they_show(k: int, turned: tuple[str, ...]) -> None:
    """torch_npu passes transposed views with false flags; for matrices, the views replace the flags."""
    random = np.random.default_rng(6)
    shapes = {"x1": (k, M), "x2": (k, N), "x1Scale": (-(-k // 64), M, 2), "x2Scale": (-(-k // 64), N, 2)}
    held = {name: random.normal(size=extents) for name, extents in shapes.items() if "Scale" not in name}
    held |= {name: random.integers(120, 130, shapes[name]).astype(np.uint8) for name in ("x1Scale", "x2Scale")}
    y = random.normal(size=(M, N)).astype(np.float32)
    given: dict[str, Any] = {"yRef": Tensor(D.FLOAT, (M, N), address=y.ctypes.data), "groupSize": GROUP}
    given |= {"transposeX1": "x1" not in turned, "transposeX2": "x2" in turned}
    operands = {"yRef": torch.from_numpy(y.copy())}
    for name in shapes:
        dtype = E8M0 if "Scale" in name else E4M3
        array = held[name] = held[name] if dtype == E8M0 else held[name].astype(E4M3.numpy)
        powers = np.ldexp(1.0, array.astype(int) - 127) if dtype == E8M0 else array.astype(float)
        operands[name] = torch.from_numpy(powers)
        view = array.swapaxes(0, 1) if name in turned else array
        given[name] = Tensor(dtype, view.shape, view.strides, address=array.ctypes.data)
    expected = whole_sum(operands)
    prepare(BY_NAME[WHOLE], given, AT_950).run()
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-6, atol=1e-6)


NZ = Format.FORMAT_FRACTAL_NZ
GROUPED_BREAKS: list[tuple[str, Any, int, str]] = [
    ("x1", None, NULL, "got null"),
    ("x2", None, NULL, "got null"),
    ("groupListType", 2, INVALID, "0 or 1"),
    ("groupSize", GROUP, INVALID, "0, got"),
    *((name, None, INVALID, "an object") for name in ("scale1Optional", "scale2", "groupList", "yRef")),
    ("x1", Tensor(E4M3, (M, K), (1, M), format=NZ), INVALID, "ACL_FORMAT_ND, got"),
    ("x2", Tensor(E4M3, (K, N), format=NZ), INVALID, "ACL_FORMAT_ND, got"),
    ("groupList", Tensor(D.INT64, (3,), format=NZ), INVALID, "ACL_FORMAT_ND, got"),
    ("scale1Optional", Tensor(E8M0, (4, M, 2), format=NZ), INVALID, "ACL_FORMAT_NCL, got"),
    ("scale2", Tensor(E8M0, (4, N, 2), format=NZ), INVALID, "ACL_FORMAT_NCL, got"),
    ("yRef", Tensor(D.FLOAT, (3, M, N), format=NZ), INVALID, "ACL_FORMAT_NCL, got"),
    ("x1", Tensor(E4M3, (M,)), INVALID, "2 dimensions"),
    ("x2", Tensor(E4M3, (K,)), INVALID, "2 dimensions"),
    ("groupList", Tensor(D.INT64, (3, 1)), INVALID, "1 dimension"),
    ("x2", Tensor(E4M3, (K + 1, N)), INVALID, "70 rows"),
    ("yRef", Tensor(D.FLOAT, (2, M, N)), INVALID, "products of groups"),
    ("x1", Tensor(D.FLOAT16, (M, K), (1, M)), INVALID, "data type"),
    ("x2", Tensor(D.HIFLOAT8, (K, N)), INVALID, "data type"),
    ("scale1Optional", Tensor(D.FLOAT, (4, M, 2)), INVALID, "data type"),
    ("scale2", Tensor(D.FLOAT, (4, N, 2)), INVALID, "data type"),
    ("groupList", Tensor(D.INT32, (3,)), INVALID, "data type"),
    ("yRef", Tensor(D.BF16, (3, M, N)), INVALID, "data type"),
    ("groupList", Tensor(D.INT64, (1025,)), INVALID, "1 to 1024"),
    ("scale1Optional", Tensor(E8M0, (3, M, 2)), INVALID, "two for two blocks"),
    ("scale2", Tensor(E8M0, (M, 4, 2)), INVALID, "two for two blocks"),
    ("x2", Tensor(E4M3, (K, N), (1, K)), INVALID, "no strides of a transposed matrix"),
    ("x1", Tensor(E4M3, (M, K)), INVALID, "strides of a transposed matrix"),
]


def test_grouped_products_check_their_arguments() -> None:
    """Each check rejects a call that those before it take, and the last call is valid."""
    rejecting = []
    for name, value, code, text in GROUPED_BREAKS:
        arguments = grouped(**{name: value})
        if text == "1 to 1024":
            arguments["yRef"] = Tensor(D.FLOAT, (1025, M, N))
        with pytest.raises(AclnnError, match=f"{name}: expected .*{text}") as caught:
            prepare(BY_NAME[GROUPED], arguments, AT_950)
        assert caught.value.code == code, (name, text)
        call = Call(BY_NAME[GROUPED], arguments, AT_950)
        rejecting.append(next(check.name for check in call.operator.checks if check.violation(call)))
    assert set(rejecting) == {check.name for check in BY_NAME[GROUPED].checks}
    prepare(BY_NAME[GROUPED], grouped(), AT_950)


@pytest.mark.parametrize("change", [{"x1": Tensor(E4M3, (0, K))}, {"x2": Tensor(E4M3, (K, 0))}])
def test_empty_grouped_products_skip_the_remaining_checks(change: Any) -> None:
    prepare(BY_NAME[GROUPED], grouped(groupSize=1, yRef=None, **change), AT_950).run()


@pytest.mark.parametrize("kind", [0, 1])
def test_grouped_products_are_added_to_y(kind: int) -> None:
    random = np.random.default_rng(5)
    x1, x2 = random.normal(size=(K, M)).astype(E4M3.numpy), random.normal(size=(K, N)).astype(E5M2.numpy)
    scales = [random.integers(120, 130, (4, size, 2)).astype(np.uint8) for size in (M, N)]
    y, index = random.normal(size=(3, M, N)).astype(np.float32), np.array(ENDS if kind == 0 else np.diff((0, *ENDS)))
    given: dict[str, Any] = {
        "x1": Tensor(E4M3, (M, K), (1, M), address=x1.ctypes.data),
        "x2": Tensor(E5M2, (K, N), address=x2.ctypes.data),
        "scale1Optional": Tensor(E8M0, (4, M, 2), address=scales[0].ctypes.data),
        "scale2": Tensor(E8M0, (4, N, 2), address=scales[1].ctypes.data),
        "groupList": Tensor(D.INT64, (3,), address=index.ctypes.data),
        "yRef": Tensor(D.FLOAT, (3, M, N), address=y.ctypes.data),
        "groupListType": kind,
        "groupSize": 0,
    }
    operands = {"x1": x1.T, "x2": x2, "yRef": y.copy()} | dict(zip(("scale1Optional", "scale2"), scales, strict=True))
    powers = {name: np.ldexp(1.0, array.astype(int) - 127) for name, array in operands.items() if name in SCALES}
    expected = grouped_sums({name: torch.from_numpy((operands | powers)[name].astype(float)) for name in operands})
    prepare(BY_NAME[GROUPED], given, AT_950).run()
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-6, atol=1e-6)


def called(index: Sequence[int], kind: int, k: int) -> Array:
    """Add products of ones, of two groups, whose scales are the rows' numbers, to ones."""
    pairs = k // 64 + 2
    ones = np.ones(k, E4M3.numpy)
    scales = np.repeat(127 + np.arange(pairs, dtype=np.uint8), 2)
    y, groups = np.ones(2, np.float32), np.array(index, np.int64)
    given: dict[str, Any] = {
        "x1": Tensor(E4M3, (1, k), (1, 1), address=ones.ctypes.data),
        "x2": Tensor(E4M3, (k, 1), address=ones.ctypes.data),
        "scale1Optional": Tensor(E8M0, (pairs, 1, 2), address=scales.ctypes.data),
        "scale2": Tensor(E8M0, (pairs, 1, 2), address=scales.ctypes.data),
        "groupList": Tensor(D.INT64, groups.shape, address=groups.ctypes.data),
        "yRef": Tensor(D.FLOAT, (2, 1, 1), address=y.ctypes.data, format=Format.FORMAT_NCL),
        "groupListType": kind,
        "groupSize": 0,
    }
    prepare(BY_NAME[GROUPED], given, AT_950).run()
    return y


def test_group_sizes_exclude_terms_after_the_last_group() -> None:
    """The second group's scales begin in row 100 // 64 + 1."""
    expected = [1 + 64 + 36 * 4, 1 + 64 * 4**2 + 1 * 4**3]
    assert called((100, 165), 0, 200).tolist() == expected
    assert called((100, 65), 1, 200).tolist() == expected


@pytest.mark.parametrize("ends", [(3, 201), (4, 3), (-1, 3)])
def test_groups_beyond_the_terms_are_rejected(ends: tuple[int, int]) -> None:
    with pytest.raises(AclnnError, match="groupList") as caught:
        called(ends, 0, 200)
    assert caught.value.code == ACLNN_ERR_RUNTIME_ERROR
