"""Foundations of library-backed operators: overlaps, devices, lists, numbers of any width, data types."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn.capi import operators as entries
from aclnn.capi.prototype import FUNCTIONS, call_of
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import ACLNN_ERR_PARAM_INVALID, AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare, prepare_layouts
from aclnn.operators import BY_NAME as OPERATOR_BY_NAME
from aclnn.operators import library
from tests.cases.table import GRID, NO_KERNEL, Arguments, T
from tests.helpers.library import BY_NAME, described, number_of, scalar


def test_every_module_of_operators_has_its_tests() -> None:
    here, there = Path(__file__).parent, Path(library.__file__).parent
    tested = {f"{path.parent.relative_to(here)}/{path.stem.removeprefix('test_')}" for path in here.rglob("test_*.py")}
    modules = {f"{path.parent.relative_to(there)}/{path.stem}" for path in there.rglob("[a-z]*.py")} - {
        "./lists",
        "attention/scores",
        "attention/sequences",
        "by_type/arrays",
        "by_type/boxes",
        "by_type/declaration",
        "by_type/general",
        "by_type/layers",
        "by_type/optimizers",
        "distributed/expert_combine",  # in test_expert_ranks
        "distributed/expert_dispatch",
        "quantization/four_bits",
        "quantization/microscaling",
        "quantization/rounding",  # in tests/verify/test_narrow.py
        "reduction/dimensions",
        "vision/box_measures",
    }
    assert modules == tested


def test_numpy_is_not_given_addresses_of_a_gpu() -> None:
    operator = OPERATOR_BY_NAME["gelu_backward"]
    arguments = {p.name: Tensor(D.FLOAT, GRID) for p in operator.parameters} | {"gradOutput": Tensor(D.INT32, GRID)}
    with pytest.raises(AclnnError, match="expected the CPU as the device") as caught:
        prepare_layouts(operator, arguments, Product.ATLAS_A2, device="cuda")
    assert caught.value.code == NO_KERNEL


def test_inputs_that_overlap_the_output_are_read_first() -> None:
    memory = np.arange(9, dtype=np.float32)
    at = memory.__array_interface__["data"][0]
    first = Tensor(D.FLOAT, (8,), address=at, owner=memory)
    second = Tensor(D.FLOAT, (8,), address=at + 4, owner=memory)
    arguments = {"self": first, "other": second, "alpha": scalar(D.FLOAT, 1), "out": second}
    prepare(BY_NAME["add"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(memory, [0, 1, 3, 5, 7, 9, 11, 13, 15])


@pytest.mark.parametrize("stride", [0, 2**62, 2**63 - 1])
def test_a_single_element_may_have_any_stride(stride: int) -> None:
    memory = np.arange(4, dtype=np.float32)
    at = memory.__array_interface__["data"][0]
    tensor = Tensor(D.FLOAT, (1, 4, 1), (stride, 1, stride), address=at, owner=memory)
    prepare(BY_NAME["inplace_sqrt"], {"selfRef": tensor}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(memory, np.sqrt(np.arange(4, dtype=np.float32)))


@pytest.mark.usefixtures("device")
def test_an_operator_may_take_lists_and_numbers_of_any_width() -> None:
    """The engine's own promise to operators that are yet to come: lists in and out, int8_t, float, bool."""
    from aclnn import cann

    def work(call: Call) -> Library:
        count = len(call["x"])
        factor = call["factor"] * (-1 if call["negate"] else 1) + call["shift"]
        return Library(
            lambda *tensors: tuple(tensor * factor for tensor in tensors),
            tuple(f"x[{at}]" for at in range(count)),
            tuple(f"y[{at}]" for at in range(count)),
        )

    operator = Operator(
        name="scale_list",
        function="aclnnScaleList",
        summary="Scale.",
        formula="y = x * (+-factor + shift)",
        parameters=(
            Parameter("x", "x", Kind.INPUT_LIST, "tensors"),
            Parameter("factor", "factor", Kind.FLOAT, "factor"),
            Parameter("shift", "shift", Kind.INT8, "shift"),
            Parameter("negate", "negate", Kind.BOOL, "negate"),
            Parameter("y", "y", Kind.OUTPUT_LIST, "results"),
        ),
        support=dict.fromkeys(Product, frozenset({D.FLOAT})),
        checks=(),
        work=work,
    )
    entries._enter_first_phase(operator)
    entries._enter_second_phase(operator)
    try:
        tensors, addresses = [], []
        for rows in (2, 3, 2, 3):
            _, memory = cann.aclrtMalloc(rows * 4, 0)
            ones = np.arange(rows, dtype=np.float32)
            assert cann.aclrtMemcpy(memory, rows * 4, ones.ctypes.data, rows * 4, 1) == 0
            tensors.append(cann.aclCreateTensor([rows], 1, 0, None, 0, 2, [rows], 1, memory))
            addresses.append(memory)
        x, y = cann.aclCreateTensorList(tensors[:2], 2), cann.aclCreateTensorList(tensors[2:], 2)
        status, size, executor = call_of("aclnnScaleListGetWorkspaceSize")(x, 2.5, -4, True, y)
        assert status == 0
        assert call_of("aclnnScaleList")(0, size, executor, None) == 0
        for address, rows in zip(addresses[2:], (2, 3), strict=True):
            found = np.zeros(rows, np.float32)
            assert cann.aclrtMemcpy(found.ctypes.data, rows * 4, address, rows * 4, 2) == 0
            np.testing.assert_array_equal(found, np.arange(rows) * -6.5)
        with pytest.raises(ValueError, match="int8_t"):
            call_of("aclnnScaleListGetWorkspaceSize")(x, 2.5, 128, True, y)
    finally:
        for name in ("aclnnScaleList", "aclnnScaleListGetWorkspaceSize"):
            FUNCTIONS.pop(name)
        gc.collect()


# Data types that the 950 class takes and Atlas A2 rejects, that both take, and that none takes.
A2, A5 = Product.ATLAS_A2, Product.ASCEND_950
BOTH: tuple[Product, ...] = (A2, A5)
NEITHER: tuple[Product, ...] = ()


def _same(dtype: D, *names: str, shape: tuple[int, ...] = (2,)) -> dict[str, Any]:
    return dict.fromkeys(names, T(dtype, shape))


DATA_TYPES: tuple[tuple[str, Arguments, tuple[Product, ...]], ...] = (
    ("split_with_size", _same(D.UINT16, "self") | {"splitSize": (2,), "dim": 0, "out": (T(D.UINT16, (2,)),)}, (A5,)),
    ("split_with_size", _same(D.INT16, "self") | {"splitSize": (2,), "dim": 0, "out": (T(D.INT16, (2,)),)}, BOTH),
    *(
        (
            "one_hot",
            {
                "self": T(D.INT32, (2,)),
                "numClasses": 3,
                **_same(dtype, "onValue", "offValue", shape=(1,)),
                "axis": -1,
                "out": T(dtype, (2, 3)),
            },
            taking,
        )
        for dtype, taking in ((D.INT8, (A5,)), (D.UINT8, (A5,)), (D.FLOAT, BOTH))
    ),
    ("tril", _same(D.COMPLEX64, "self", "out", shape=(2, 3)) | {"diagonal": 0}, (A5,)),
    ("triu", _same(D.COMPLEX64, "self", "out", shape=(2, 3)) | {"diagonal": 0}, (A5,)),
    ("inplace_zero", _same(D.HIFLOAT8, "selfRef"), (A5,)),
    ("inplace_fill_tensor", _same(D.FLOAT8_E5M2, "selfRef", "value", shape=(1,)), (A5,)),
    ("ne_tensor", _same(D.UINT32, "self", "other", "out"), (A5,)),
    ("equal", {**_same(D.COMPLEX64, "self", "other"), "out": T(D.BOOL, (1,))}, NEITHER),
    ("equal", {**_same(D.UINT32, "self", "other"), "out": T(D.BOOL, (1,))}, BOTH),
    (
        "sort",
        _same(D.UINT16, "self", "valuesOut")
        | {"stable": True, "dim": 0, "descending": False, "indicesOut": T(D.INT64, (2,))},
        (A5,),
    ),
    ("argsort", _same(D.DOUBLE, "self") | {"dim": 0, "descending": False, "out": T(D.INT64, (2,))}, NEITHER),
    ("fmod_tensor", _same(D.INT16, "self", "other", "out"), NEITHER),
    ("signbit", {**_same(D.UINT64, "self"), "out": T(D.FLOAT16, (2,))}, BOTH),
    ("tanh", {**_same(D.FLOAT, "self"), "out": T(D.DOUBLE, (2,))}, NEITHER),
    (
        "hardtanh",
        _same(D.FLOAT, "self", "out") | dict.fromkeys(("clipValueMin", "clipValueMax"), number_of(D.BOOL)),
        NEITHER,
    ),
    *(
        (
            "im2col",
            {
                "self": T(dtype, (2, 4, 4)),
                "kernelSize": (2, 2),
                "dilation": (1, 1),
                "padding": (0, 0),
                "stride": (1, 1),
                "out": T(dtype, (8, 9)),
            },
            taking,
        )
        for dtype, taking in ((D.UINT16, (A5,)), (D.BF16, BOTH), (D.COMPLEX128, NEITHER))
    ),
    ("sinc", _same(D.COMPLEX64, "self", "out"), NEITHER),
    ("x_log_y_tensor", _same(D.DOUBLE, "self", "other", "out"), NEITHER),
    ("any", _same(D.COMPLEX64, "self") | {"dim": (0,), "keepdim": False, "out": T(D.BOOL, ())}, NEITHER),
    (
        "std",
        _same(D.DOUBLE, "self") | {"dim": (0,), "correction": 1, "keepdim": False, "out": T(D.DOUBLE, ())},
        NEITHER,
    ),
    ("rsubs", _same(D.BOOL, "self", "out") | {"other": number_of(D.INT32), "alpha": number_of(D.INT32)}, NEITHER),
    (
        "search_sorted",
        _same(D.BF16, "sortedSequence", "self")
        | {"outInt32": False, "right": False, "sorter": None, "out": T(D.INT64, (2,))},
        NEITHER,
    ),
)


@pytest.mark.parametrize("product", BOTH, ids=lambda product: product.name)
@pytest.mark.parametrize(("name", "call", "taking"), DATA_TYPES)
def test_data_types_depend_on_the_product(
    name: str, call: Arguments, taking: tuple[Product, ...], product: Product
) -> None:
    if product in taking:
        assert prepare(BY_NAME[name], described(call), product).prepared.plan
    else:
        with pytest.raises(AclnnError, match="expected data type") as caught:
            prepare(BY_NAME[name], described(call), product)
        assert caught.value.code == ACLNN_ERR_PARAM_INVALID
