"""Python programs that load the libraries through ctypes: what they rely on, and every rejection through C."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn import acl, cann
from aclnn.capi import operators
from aclnn.capi.prototype import FUNCTIONS
from aclnn.core.dtypes import DataType
from aclnn.core.operator import Kind
from aclnn.core.products import Product, set_soc_name
from aclnn.execution.executor import Prepared
from aclnn.operators import BY_NAME
from aclnn.runtime import handles as runtime_handles
from aclnn.runtime import memory
from aclnn.toolkit.environment import variables
from tests.cases import CASES
from tests.cases.table import FLOATS, PRODUCTS, SOC_NAMES, Accepted, Arguments, Case, Rejected, T, changed
from tests.helpers.toolkit_client import argument, first_phase, int64s, load, recent_error, tensor
from tests.helpers.toolkit_support import needs_toolkit

pytestmark = [needs_toolkit, pytest.mark.toolkit]

ROWS = [
    pytest.param(case, row, id=f"{case.name}-{place}-{row.argument}")
    for case in CASES
    for place, row in enumerate(case.rejected)
]
EDGES = [pytest.param(case, edge, id=f"{case.name}-{edge.name}") for case in CASES for edge in case.accepted]


@pytest.fixture(scope="module")
def lib(toolkit_root: Path) -> ctypes.CDLL:
    return load(toolkit_root)


def test_pyacl_has_the_name_that_it_has_in_cann(toolkit_root: Path) -> None:
    program = (
        "import acl; from acl.rt import malloc; from aclnn.acl import rt; print(malloc is acl.rt.malloc is rt.malloc)"
    )
    environment = variables(toolkit_root, os.environ)
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@contextmanager
def handles(lib: ctypes.CDLL, case: Case, arguments: Arguments) -> Iterator[list[Any]]:
    """Create a call's arguments as C takes them; destroy them at the end of the block."""
    given = []
    for parameter in case.operator.parameters:
        value = arguments[parameter.name]
        if isinstance(value, T):
            given.append(tensor(lib, value.dtype, value.shape, format=value.format))
        else:
            given.append(argument(lib, parameter.kind, value))
    yield given
    for parameter, handle in zip(case.operator.parameters, given, strict=True):
        if parameter.is_tensor:
            assert lib.aclDestroyTensor(handle) == 0
        elif parameter.kind is Kind.INT_ARRAY:
            assert lib.aclDestroyIntArray(handle) == 0
        elif parameter.kind is Kind.BOOL_ARRAY:
            assert lib.aclDestroyBoolArray(handle) == 0
        elif parameter.kind is Kind.SCALAR:
            assert lib.aclDestroyScalar(handle) == 0


@pytest.mark.parametrize(("case", "row"), ROWS)
def test_every_check_rejects_its_case_in_c(lib: ctypes.CDLL, case: Case, row: Rejected) -> None:
    tried = 0
    for product in row.products:
        set_soc_name(SOC_NAMES[product])
        for dtype in row.dtypes:
            if dtype not in case.dtypes.get(product, FLOATS[:2]):
                continue
            with handles(lib, case, changed(case.call(dtype), row.change)) as given:
                status, size, executor = first_phase(lib, case.operator, given)
                assert (status, size, executor) == (row.code, 0, None), "nothing is written on failure"
                text = recent_error(lib)
                assert text.startswith(f"{case.operator.function}: {row.argument}: expected ")
                assert row.expected in text
                assert row.got in text
                assert lib.aclrtPeekAtLastError(0) == row.code
                tried += 1
    assert tried


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize(("case", "edge"), EDGES)
def test_edge_cases_are_accepted_in_c(lib: ctypes.CDLL, case: Case, edge: Accepted) -> None:
    for product in edge.products:
        set_soc_name(SOC_NAMES[product])
        for dtype in case.dtypes.get(product, ()):
            with handles(lib, case, changed(case.call(dtype), edge.change)) as given:
                status, _, executor = first_phase(lib, case.operator, given)
                assert status == 0, recent_error(lib)
                assert lib.aclDestroyAclOpExecutor(executor) == 0


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products_without_a_kernel_are_rejected_in_c(lib: ctypes.CDLL, case: Case, product: Product) -> None:
    set_soc_name(SOC_NAMES[product])
    assert lib.aclrtGetSocName() == SOC_NAMES[product].encode()
    with handles(lib, case, case.call(DataType.FLOAT)) as given:
        status, _, executor = first_phase(lib, case.operator, given)
        expected, text = case.unsupported.get(product, (0, ""))
        assert status == expected
        if expected:
            assert text in recent_error(lib)
        else:
            assert lib.aclDestroyAclOpExecutor(executor) == 0


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_results_of_the_first_phase_come_before_the_operators_own_checks(lib: ctypes.CDLL, case: Case) -> None:
    entry = getattr(lib, f"{case.operator.function}GetWorkspaceSize")
    nothing = [
        0 if p.kind in (Kind.BOOL, Kind.DOUBLE, Kind.INT32, Kind.INT64) else None for p in case.operator.parameters
    ]
    value = ctypes.c_uint64()
    for results, name in (((None, ctypes.byref(value)), "workspaceSize"), ((ctypes.byref(value), None), "executor")):
        assert entry(*nothing, *results) == 161001
        assert f"{name}: expected an address for the result, got null" in recent_error(lib)


@pytest.mark.parametrize("kind", ["Tensor", "Scalar"])
def test_a_list_of_a_foreign_handle_above_the_largest_signed_number_is_rejected(lib: ctypes.CDLL, kind: str) -> None:
    """A handle above the largest signed number must not become negative in Python."""
    listed = getattr(lib, f"aclCreate{kind}List")((ctypes.c_void_p * 1)(2**64 - 16), 1)
    assert getattr(lib, f"aclDestroy{kind}List")(listed) == 161001
    assert "got 0xfffffffffffffff0, which is not a handle" in recent_error(lib)


def test_counts_that_no_array_has_are_named(lib: ctypes.CDLL) -> None:
    dims, count = (ctypes.c_int64 * 1)(1), 2**40
    assert not lib.aclCreateTensor(dims, count, 0, None, 0, 2, dims, 1, None)
    assert (
        recent_error(lib)
        == "aclCreateTensor: viewDimsNum: expected at most 268435456 elements, got 1099511627776 [161002]"
    )
    assert not lib.aclCreateIntArray(dims, count)
    assert recent_error(lib).startswith(
        "aclCreateIntArray: size: expected at most 268435456 elements, got 1099511627776"
    )


@pytest.mark.parametrize(
    ("function", "code", "setting", "expected"),
    [
        ("aclrtSetDevice", 500000, ("ACLNN_DEVICE_COUNT", "0"), "from 1 to 1024, got '0'"),
        ("aclrtSetDevice", 500000, ("ACLNN_MEMORY_BYTES", "abc"), "of at least 1, got 'abc'"),
        ("aclnnSiluBackwardGetWorkspaceSize", 561000, ("ACLNN_TEST_WORKSPACE_BYTES", "-1"), "of at least 0, got '-1'"),
    ],
)
def test_an_invalid_setting_is_not_an_internal_error(
    lib: ctypes.CDLL,
    fresh: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    function: str,
    code: int,
    setting: tuple[str, str],
    expected: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(*setting)
        if function == "aclrtSetDevice":
            assert lib.aclrtSetDevice(0) == code
        else:
            # A shape of no other test: where descriptions are known, C answers, and no setting is read.
            tensors = [tensor(lib, 0, (4391,)) for _ in range(3)]
            assert first_phase(lib, BY_NAME["silu_backward"], tensors)[0] == code
    text = f"{function}: {setting[0]}: expected an integer {expected}"
    assert capfd.readouterr().err == f"aclnn: {text}\n"
    assert lib.aclrtPeekAtLastError(0) == code
    assert recent_error(lib) == f"{text} [{code}]"


@pytest.mark.parametrize(("function", "code"), [("aclrtSetDevice", 500000), ("aclDestroyTensor", 561000)])
def test_internal_errors_are_recorded_with_the_returned_status(
    lib: ctypes.CDLL, fresh: None, monkeypatch: pytest.MonkeyPatch, function: str, code: int
) -> None:
    """The recorded status of an internal error is the returned one, 561000 or 500000."""

    def fail(*arguments: object) -> None:
        raise KeyError("nobody expected it")

    with monkeypatch.context() as patch:
        patch.setattr("aclnn.runtime.devices.set_device", fail)
        patch.setattr("aclnn.runtime.handles.pop", fail)
        assert getattr(lib, function)(1) == code
    assert lib.aclrtPeekAtLastError(0) == code
    assert recent_error(lib) == f"{function}: internal error: KeyError: 'nobody expected it' [{code}]"


def test_the_upper_half_of_a_status_is_zero(lib: ctypes.CDLL, toolkit_root: Path, fresh: None) -> None:
    wide = ctypes.CDLL(str(toolkit_root / "lib64" / "libopapi.so"))
    for function in FUNCTIONS.values():
        if function.returns_status and function.name != "aclFinalize":
            entry = wide[function.name]  # an item, unlike an attribute, is a new object with types of its own
            entry.argtypes = getattr(lib, function.name).argtypes
            entry.restype = ctypes.c_uint64
            for filling in (0, 1):
                values = [
                    filling if kind in (ctypes.c_int32, ctypes.c_int64) else None if kind is ctypes.c_char_p else 0
                    for kind in entry.argtypes
                ]
                assert entry(*values) < 2**32, function.name


def test_operators_are_exported_by_libopapi_and_libopapi_nn(toolkit_root: Path) -> None:
    libraries = {name: ctypes.CDLL(str(toolkit_root / "lib64" / f"lib{name}.so")) for name in ("opapi", "opapi_nn")}
    for library in libraries.values():
        assert library.aclnnSiluBackwardGetWorkspaceSize


def test_lists_are_released_through_the_object_librarys_handle(lib: ctypes.CDLL, toolkit_root: Path) -> None:
    base = ctypes.CDLL(str(toolkit_root / "lib64" / "libnnopbase.so"))
    handle = tensor(lib, 0, (4, 2, 7), strides=(1, 28, 4), offset=3)
    for getter, expected in (
        ("aclGetViewShape", [4, 2, 7]),
        ("aclGetViewStrides", [1, 28, 4]),
        ("aclGetStorageShape", [4, 2, 7]),
    ):
        dims, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
        for _ in range(1000):
            assert getattr(lib, getter)(handle, ctypes.byref(dims), ctypes.byref(count)) == 0
            assert dims[: count.value] == expected
            base._ZdaPv(dims)
    assert lib.aclDestroyTensor(handle) == 0


def test_rt_functions_are_the_same_runtime(lib: ctypes.CDLL, toolkit_root: Path, fresh: None) -> None:
    below = ctypes.CDLL(str(toolkit_root / "lib64" / "libruntime.so"))
    context, stream, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert below.rtCtxCreate(ctypes.byref(context), 0, 0) == 0
    assert below.rtStreamCreate(ctypes.byref(stream), 0) == 0
    assert below.rtMalloc(ctypes.byref(memory), ctypes.c_uint64(64), 0, 0) == 0
    data = (ctypes.c_uint8 * 64)(*range(64))
    back = (ctypes.c_uint8 * 64)()
    assert below.rtMemcpy(memory, ctypes.c_uint64(64), data, ctypes.c_uint64(64), 1) == 0
    assert below.rtMemcpy(back, ctypes.c_uint64(64), memory, ctypes.c_uint64(64), 2) == 0
    assert bytes(back) == bytes(data)
    assert below.rtSetDeviceSatMode(1) == 0
    assert below.rtStreamSynchronize(stream) == 0
    assert below.rtStreamSynchronizeWithTimeout(stream, 100) == 0
    assert lib.aclrtMemset(memory, 64, 5, 64) == 0, "one table behind both"
    assert below.rtStreamDestroy(stream) == 0
    assert below.rtStreamDestroyForce(stream) != 0, "destroyed before"
    assert below.rtFree(memory) == 0
    assert below.rtFree(memory) != 0, "freed before"
    assert below.rtCtxDestroy(context) == 0
    assert below.rtStreamCreate(ctypes.byref(stream), 0) == 107002


def test_aclnn_init_takes_a_small_json_file(lib: ctypes.CDLL, tmp_path: Path) -> None:
    path = tmp_path / "acl.json"
    path.write_text('{"dump": {"dump_scene": "lite_exception"}}')
    assert lib.aclnnInit(str(path).encode()) == 0
    assert lib.aclnnFinalize() == 0


class Buffers:
    """Device memory with arrays copied in and out."""

    def __init__(self, lib: ctypes.CDLL) -> None:
        self.lib = lib

    def put(self, array: np.ndarray[Any, Any], before: int = 0) -> int:
        """Copy an array to a new allocation, at an offset in bytes; return its address."""
        address = ctypes.c_void_p()
        assert self.lib.aclrtMalloc(ctypes.byref(address), array.nbytes + before, 0) == 0
        assert address.value is not None
        inside = address.value + before
        assert self.lib.aclrtMemcpy(inside, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
        return inside

    def get(self, address: int, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        result = np.empty_like(like)
        assert self.lib.aclrtMemcpy(result.ctypes.data, result.nbytes, address, result.nbytes, 2) == 0
        return result


@pytest.fixture
def buffers(lib: ctypes.CDLL, device: None) -> Buffers:
    return Buffers(lib)


HARDSWISH = BY_NAME["hardswish_backward"]
X = np.full(8, 4.0, np.float32)
DY = np.arange(8, dtype=np.float32)


def executor_over(lib: ctypes.CDLL, dy: int, x: int, dx: int) -> int:
    tensors = [tensor(lib, 0, (8,), address) for address in (dy, x, dx)]
    status, size, executor = first_phase(lib, HARDSWISH, tensors)
    assert (status, size) == (0, 0)
    for handle in tensors:
        assert lib.aclDestroyTensor(handle) == 0, "phase one keeps what it needs"
    assert executor is not None
    return executor


@pytest.mark.parametrize("before", [0, 4, 64, 512])
def test_data_may_begin_anywhere_in_an_allocation(lib: ctypes.CDLL, buffers: Buffers, before: int) -> None:
    dy, x, dx = (buffers.put(array, before) for array in (DY, X, np.zeros_like(X)))
    assert lib.aclnnHardswishBackward(None, 0, executor_over(lib, dy, x, dx), None) == 0
    assert lib.aclrtSynchronizeStream(None) == 0
    np.testing.assert_array_equal(buffers.get(dx, DY), DY)


def test_objects_made_in_python_work_in_c(lib: ctypes.CDLL, device: None) -> None:
    stream, status = acl.rt.create_stream()
    assert status == 0
    addresses = []
    for array in (DY, X, np.zeros_like(X)):
        address, status = acl.rt.malloc(array.nbytes, 0)
        assert status == 0
        assert acl.rt.memcpy(address, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
        addresses.append(address)
    assert lib.aclnnHardswishBackward(None, 0, executor_over(lib, *addresses), stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    result = np.empty_like(DY)
    assert acl.rt.memcpy(result.ctypes.data, result.nbytes, addresses[2], result.nbytes, 2) == 0
    np.testing.assert_array_equal(result, DY)
    assert lib.aclrtDestroyStream(stream) == 0
    assert acl.rt.destroy_stream(stream) != 0


def test_the_stream_is_synchronised_after_a_rejected_second_phase(lib: ctypes.CDLL, buffers: Buffers) -> None:
    executor = executor_over(lib, *(buffers.put(DY) for _ in range(3)))
    assert lib.aclnnHardswishBackward(None, 64, executor, None) == 161001
    assert "workspace" in recent_error(lib)
    assert lib.aclrtSynchronizeStream(None) == 0
    assert lib.aclnnHardswishBackward(None, 0, executor, None) == 161001, "the first rejection destroyed it"


class TestAnswersInC:
    """A phase one with the arguments of an earlier one is answered in C, with the same results as by Python."""

    @pytest.fixture(autouse=True)
    def answered(self, lib: ctypes.CDLL, buffers: Buffers, monkeypatch: pytest.MonkeyPatch) -> None:
        """Cache the answer in C for eight float32 elements, and none for other arguments."""
        executor_over(lib, *(buffers.put(DY) for _ in range(3)))

        def prepare(*arguments: object) -> None:
            raise RuntimeError("Python was asked")

        monkeypatch.setattr(operators, "prepare", prepare)

    def test_repeated_calls_are_answered_in_c(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        dy, x, dx = (buffers.put(array, 16) for array in (DY, X, np.zeros_like(X)))
        assert lib.aclnnHardswishBackward(None, 0, executor_over(lib, dy, x, dx), None) == 0
        assert lib.aclrtSynchronizeStream(None) == 0
        np.testing.assert_array_equal(buffers.get(dx, DY), DY)

    @pytest.mark.parametrize("which", range(3), ids=["gradOutput", "self", "out"])
    def test_repeated_addresses_are_accepted_until_freed(
        self, lib: ctypes.CDLL, buffers: Buffers, monkeypatch: pytest.MonkeyPatch, which: int
    ) -> None:
        stream = ctypes.c_void_p()
        assert lib.aclrtCreateStream(ctypes.byref(stream)) == 0
        addresses = [buffers.put(array) for array in (DY, X, np.zeros_like(X))]
        assert lib.aclnnHardswishBackward(None, 0, executor_over(lib, *addresses), stream) == 0
        assert lib.aclrtMemset(addresses[2], 32, 0xFF, 32) == 0
        with monkeypatch.context() as patch:
            patch.delattr(Prepared, "task")
            assert lib.aclnnHardswishBackward(None, 0, executor_over(lib, *addresses), stream) == 0
        assert lib.aclrtSynchronizeStream(stream) == 0
        np.testing.assert_array_equal(buffers.get(addresses[2], DY), DY)
        executor = executor_over(lib, *addresses)
        assert lib.aclrtFree(addresses[which]) == 0
        assert not memory.tasks(), "nothing keeps what was freed"
        assert lib.aclnnHardswishBackward(None, 0, executor, stream) == 107000
        assert "freed" in recent_error(lib)
        assert lib.aclrtDestroyStream(stream) == 0

    @pytest.mark.parametrize(
        ("dtype", "shape", "strides", "format"),
        [(1, (8,), (1,), 2), (0, (4,), (1,), 2), (0, (8, 1), (1, 1), 2), (0, (8,), (2,), 2), (0, (8,), (1,), 0)],
        ids=["dtype", "extent", "rank", "strides", "format"],
    )
    def test_other_descriptions_are_planned_anew(
        self, lib: ctypes.CDLL, dtype: int, shape: tuple[int, ...], strides: tuple[int, ...], format: int
    ) -> None:
        given = [tensor(lib, dtype, shape, strides=strides, format=format) for _ in range(3)]
        assert first_phase(lib, HARDSWISH, given) == (561000, 0, None)
        assert "Python was asked" in recent_error(lib)

    def test_another_product_is_planned_anew(self, lib: ctypes.CDLL) -> None:
        set_soc_name(SOC_NAMES[Product.ATLAS_TRAINING])
        assert first_phase(lib, HARDSWISH, [tensor(lib, 0, (8,)) for _ in range(3)])[0] == 561000
        assert "Python was asked" in recent_error(lib)

    def test_addresses_set_between_the_phases(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        dy, x, dx = (buffers.put(array) for array in (DY, X, np.zeros_like(X)))
        tensors = [tensor(lib, 0, (8,)) for _ in range(3)]
        executors = [first_phase(lib, HARDSWISH, tensors)[2] for _ in range(2)]
        for handle, address in zip(tensors, (dy, x, dx), strict=True):
            assert lib.aclSetRawTensorAddr(handle, address) == 0
        assert lib.aclDestroyTensor(tensors[0]) == 0
        for executor in executors:
            assert lib.aclrtMemset(dx, 32, 0xFF, 32) == 0
            assert lib.aclnnHardswishBackward(None, 0, executor, None) == 0
            assert lib.aclrtSynchronizeStream(None) == 0
            np.testing.assert_array_equal(buffers.get(dx, DY), DY)

    def test_another_operators_executor_can_still_run(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        executor = executor_over(lib, *(buffers.put(array) for array in (DY, X, np.zeros_like(X))))
        assert lib.aclnnSiluBackward(None, 0, executor, None) == 161002
        assert lib.aclnnHardswishBackward(None, 0, executor, None) == 0
        assert lib.aclnnHardswishBackward(None, 0, executor, None) == 161001

    def test_python_sees_objects_created_in_c(self, lib: ctypes.CDLL) -> None:
        handle = tensor(lib, 0, (2, 3), 64, offset=5)
        assert cann.aclGetViewShape(handle) == (0, [2, 3], 2)
        assert cann.aclGetViewStrides(handle) == (0, [3, 1], 2)
        assert cann.aclGetStorageShape(handle) == (0, [2, 3], 2)
        assert cann.aclGetViewOffset(handle) == (0, 5)
        assert cann.aclGetRawTensorAddr(handle) == (0, 64)
        assert lib.aclDestroyTensor(handle) == 0
        assert lib.aclDestroyTensor(handle) == 161001
        assert "which was destroyed" in recent_error(lib)

    def test_destroying_an_executor_from_python_keeps_the_others(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        """Python may take one of several executors of the same, destroyed tensors."""
        tensors = [tensor(lib, 0, (8,), buffers.put(array)) for array in (DY, X, X)]
        executors = [first_phase(lib, HARDSWISH, tensors)[2] for _ in range(400)]
        for handle in tensors:
            assert lib.aclDestroyTensor(handle) == 0
        assert lib.aclSetAclOpExecutorRepeatable(executors[0]) == 0
        assert {lib.aclnnHardswishBackward(None, 0, executor, None) for executor in executors} == {0}
        assert lib.aclDestroyAclOpExecutor(executors[0]) == 0

    def test_destroying_a_list_destroys_tensors_of_c_and_python(self, lib: ctypes.CDLL) -> None:
        here, there = tensor(lib, 0, (1,)), tensor(lib, 0, (1,))
        assert cann.aclGetViewOffset(there) == (0, 0)  # Python's from now on
        both = lib.aclCreateTensorList((ctypes.c_void_p * 2)(here, there), 2)
        assert lib.aclDestroyTensorList(both) == 0
        for handle in (here, there):
            assert lib.aclDestroyTensor(handle) == 161001


def test_executors_that_c_has_no_room_for_leave_pythons_table(lib: ctypes.CDLL, buffers: Buffers) -> None:
    native = runtime_handles.adopt.__self__  # type: ignore[attr-defined]  # a method, where the libraries are loaded
    address = buffers.put(X)

    def executor(elements: int) -> int | None:
        tensors = [tensor(lib, 0, (elements, 0), address)] * 3
        status, _, made = first_phase(lib, HARDSWISH, tensors)
        assert status == 0
        assert lib.aclDestroyTensor(tensors[0]) == 0
        return made

    held = [executor(elements) for elements in range(3000) for _ in range(2)]  # the second is C's, with the answer
    before = len(native._kept)
    for elements in range(3000, 3500):
        assert lib.aclDestroyAclOpExecutor(executor(elements)) == 0
    assert len(native._kept) < before + 100
    for each in held:
        assert lib.aclDestroyAclOpExecutor(each) == 0


class TestMisuse:
    """Undefined behaviour on a device is detected here, with a status and a message."""

    def expect_error(self, lib: ctypes.CDLL, executor: int, code: int, *words: str) -> None:
        assert lib.aclnnHardswishBackward(None, 0, executor, None) == code
        text = recent_error(lib)
        assert text.startswith("aclnnHardswishBackward: ")
        for word in words:
            assert word in text
        assert lib.aclrtSynchronizeStream(None) == 0

    def test_a_second_use_of_a_single_use_executor_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        executor = executor_over(lib, *(buffers.put(array) for array in (DY, X, np.zeros_like(X))))
        assert lib.aclnnHardswishBackward(None, 0, executor, None) == 0
        self.expect_error(lib, executor, 161001, "executor")

    def test_a_repeatable_executor_runs_until_it_is_destroyed(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        dy, x, dx = (buffers.put(array) for array in (DY, X, np.zeros_like(X)))
        executor = executor_over(lib, dy, x, dx)
        assert lib.aclSetAclOpExecutorRepeatable(executor) == 0
        for turn in range(3):
            assert lib.aclrtMemset(dx, 32, 0xFF, 32) == 0
            assert lib.aclnnHardswishBackward(None, 0, executor, None) == 0, turn
            assert lib.aclrtSynchronizeStream(None) == 0
            np.testing.assert_array_equal(buffers.get(dx, DY), DY)
        assert lib.aclDestroyAclOpExecutor(executor) == 0
        assert lib.aclDestroyAclOpExecutor(executor) == 561000
        self.expect_error(lib, executor, 161001, "executor")

    def test_an_executor_of_another_operator_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        executor = executor_over(lib, *(buffers.put(array) for array in (DY, X, np.zeros_like(X))))
        assert lib.aclnnSiluBackward(None, 0, executor, None) == 161002
        assert "aclnnHardswishBackward" in recent_error(lib)

    @pytest.mark.parametrize("which", range(3), ids=["gradOutput", "self", "out"])
    def test_a_tensor_beyond_its_allocation_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers, which: int) -> None:
        addresses = [buffers.put(DY) for _ in range(3)]
        addresses[which] += 4
        self.expect_error(lib, executor_over(lib, *addresses), 107000, HARDSWISH.parameters[which].name, "32 bytes")

    @pytest.mark.parametrize("which", range(3), ids=["gradOutput", "self", "out"])
    def test_a_freed_buffer_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers, which: int) -> None:
        addresses = [buffers.put(DY) for _ in range(3)]
        executor = executor_over(lib, *addresses)
        assert lib.aclrtFree(addresses[which]) == 0
        self.expect_error(lib, executor, 107000, HARDSWISH.parameters[which].name, "freed")

    def test_null_data_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        self.expect_error(lib, executor_over(lib, buffers.put(DY), buffers.put(X), 0), 107000, "out", "null")

    def test_an_output_in_read_only_memory_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        constant = bytes(64)
        address = ctypes.cast(ctypes.c_char_p(constant), ctypes.c_void_p).value
        assert address is not None
        aligned = -(-address // 32) * 32
        self.expect_error(lib, executor_over(lib, buffers.put(DY), buffers.put(X), aligned), 107000, "out")
        assert constant == bytes(64)

    def test_freeing_an_unallocated_address_is_rejected(self, lib: ctypes.CDLL, buffers: Buffers) -> None:
        address = buffers.put(DY)
        assert lib.aclrtFree(address + 4) == 107000
        assert lib.aclrtFree(DY.ctypes.data) == 107000
        assert lib.aclrtFree(address) == 0
        assert lib.aclrtFree(address) == 107000
        assert "freed" in recent_error(lib)

    def test_null_stale_and_foreign_handles_are_rejected(self, lib: ctypes.CDLL, device: None) -> None:
        array = lib.aclCreateIntArray(int64s([1, 2]), 2)
        size = ctypes.c_uint64()
        assert lib.aclGetFloatArraySize(array, ctypes.byref(size)) == 161001, "an array of another type"
        assert lib.aclDestroyTensor(array) == 161001, "an array is no tensor"
        assert lib.aclGetIntArraySize(array, ctypes.byref(size)) == 0
        assert size.value == 2
        assert lib.aclDestroyIntArray(array) == 0
        assert lib.aclDestroyIntArray(array) == 161001, "destroyed before"
        assert lib.aclGetIntArraySize(array, ctypes.byref(size)) == 161001
        assert lib.aclGetIntArraySize(DY.ctypes.data, ctypes.byref(size)) == 161001, "an address is no handle"
        assert lib.aclDestroyIntArray(None) == 0
        assert lib.aclrtDestroyStream(array) in (107000, 107003)
        assert lib.aclrtDestroyEvent(array) == 107000
        assert lib.aclrtSetCurrentContext(array) == 107000
        assert lib.aclrtDestroyContext(array) == 107002
        assert lib.aclDestroyAclOpExecutor(array) == 561000
        assert lib.aclDestroyAclOpExecutor(None) == 561103
        with_stale = [array, None, None]
        assert first_phase(lib, HARDSWISH, with_stale)[0] == 161001


def test_an_implausibly_long_array_is_rejected(lib: ctypes.CDLL) -> None:
    assert lib.aclCreateIntArray(int64s([1]), 2**60) is None
    assert lib.aclCreateTensor(int64s([1]), 2**63, 0, None, 0, 2, None, 0, None) is None


def test_strides_beyond_64_bits_wrap_as_in_c(lib: ctypes.CDLL) -> None:
    shape, count = int64s([3, 2**62, 3]), ctypes.c_uint64()
    strides = ctypes.POINTER(ctypes.c_int64)()
    handle = lib.aclCreateTensor(shape, 3, DataType.FLOAT, None, 0, 2, shape, 3, None)
    status = lib.aclGetViewStrides(handle, ctypes.byref(strides), ctypes.byref(count))
    assert (status, count.value) == (0, 3)
    assert strides[:3] == [3 * 2**62 - 2**64, 3, 1]
    lib._ZdaPv(ctypes.cast(strides, ctypes.c_void_p))
    assert lib.aclDestroyTensor(handle) == 0


def test_rejected_values_match_python(lib: ctypes.CDLL) -> None:
    assert lib.aclGetTensorDescType(None) == cann.aclGetTensorDescType(0) == -1
    assert lib.aclGetTensorDescFormat(None) == cann.aclGetTensorDescFormat(0) == -1
    assert lib.aclGetTensorDescName(None).decode() == cann.aclGetTensorDescName(0) == ""
    assert lib.aclGetTensorDescSize(None) == cann.aclGetTensorDescSize(0) == 0
    assert lib.aclCreateTensorDesc(0, 2, None, 2) is None


def test_a_size_that_no_number_of_c_holds_is_rejected(lib: ctypes.CDLL) -> None:
    desc = lib.aclCreateTensorDesc(0, 2, int64s([1 << 40, 1 << 40]), 2)
    assert lib.aclGetTensorDescSize(desc) == 0
    assert "expected a size below 2^64" in recent_error(lib)
    lib.aclDestroyTensorDesc(desc)
