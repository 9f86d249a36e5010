"""What lies beneath library-backed operators: memory that overlaps, devices, lists and numbers of any width."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from aclnn.capi import operators as entries
from aclnn.capi.prototype import CALLS, FUNCTIONS
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Kind, Library, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare, prepare_layouts
from aclnn.operators import BY_NAME as OPERATOR_BY_NAME
from aclnn.operators import library
from tests.cases.table import GRID, NO_KERNEL
from tests.helpers.library import BY_NAME, scalar


def test_every_module_of_operators_has_its_tests() -> None:
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    modules = {path.stem for path in Path(library.__file__).parent.glob("[a-z]*.py")} - {
        "dimensions",
        "four_bits",
        "lists",
        "of_box_types",
        "of_types",
        "scores",
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
        status, size, executor = CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, -4, True, y)
        assert status == 0
        assert CALLS["aclnnScaleList"](0, size, executor, None) == 0
        for address, rows in zip(addresses[2:], (2, 3), strict=True):
            found = np.zeros(rows, np.float32)
            assert cann.aclrtMemcpy(found.ctypes.data, rows * 4, address, rows * 4, 2) == 0
            np.testing.assert_array_equal(found, np.arange(rows) * -6.5)
        with pytest.raises(ValueError, match="int8_t"):
            CALLS["aclnnScaleListGetWorkspaceSize"](x, 2.5, 128, True, y)
    finally:
        for name in ("aclnnScaleList", "aclnnScaleListGetWorkspaceSize"):
            CALLS.pop(name)
            FUNCTIONS.pop(name)
        gc.collect()
