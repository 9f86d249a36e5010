"""The pyACL door: its names, its return habits, and that the same runtime is behind it."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest

from aclnn import acl, cann
from aclnn.core.status import AclnnError
from tests.helpers.fresh_runtime import pass_gate, queue, recent_error


def test_acl_calls_allocate_copy_and_return_their_status_last(fresh: None) -> None:
    assert acl.init() == 0
    assert acl.init("") == 100002
    assert acl.rt.get_device_count() == (2, 0)
    assert acl.rt.set_device(1) == 0
    assert acl.rt.get_device() == (1, 0)
    assert acl.rt.get_run_mode() == (1, 0)
    context, ret = acl.rt.create_context(0)
    assert ret == 0
    assert acl.rt.get_context() == (context, 0)
    stream, ret = acl.rt.create_stream()
    assert ret == 0

    data = np.arange(16, dtype=np.float32)
    there, ret = acl.rt.malloc(data.nbytes, cann.ACL_MEM_MALLOC_HUGE_FIRST)
    assert ret == 0
    host, ret = acl.rt.malloc_host(data.nbytes)
    assert ret == 0
    pointer = acl.util.numpy_contiguous_to_ptr(data)
    assert acl.rt.memcpy(there, data.nbytes, pointer, data.nbytes, cann.ACL_MEMCPY_HOST_TO_DEVICE) == 0
    assert acl.rt.memcpy_async(host, data.nbytes, there, data.nbytes, cann.ACL_MEMCPY_DEVICE_TO_HOST, stream) == 0
    assert acl.rt.memset_async(there, data.nbytes, 0, data.nbytes, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert np.array_equal(acl.util.ptr_to_numpy(host, (4, 4), 11), data.reshape(4, 4))
    assert acl.rt.memset(host, data.nbytes, 1, 4) == 0
    assert acl.util.ptr_to_bytes(host, 6) == b"\x01" * 4 + b"\x00\x00"

    free, total, ret = acl.rt.get_mem_info(cann.ACL_HBM_MEM)
    assert ret == 0
    assert total - free == data.nbytes
    assert acl.rt.free(there) == acl.rt.free_host(host) == 0
    assert acl.rt.synchronize_device() == 0
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.set_context(context) == 0
    assert acl.rt.destroy_context(context) == 0
    assert acl.rt.reset_device(1) == 0
    assert acl.finalize() == 0


def test_acl_events_measure_time_and_are_queried(device: None) -> None:
    stream, _ = acl.rt.create_stream()
    start, ret = acl.rt.create_event()
    assert ret == 0
    end, ret = acl.rt.create_event_with_flag(cann.ACL_EVENT_TIME_LINE)
    assert ret == 0
    gate = threading.Event()
    assert acl.rt.record_event(start, stream) == 0
    queue(stream).enqueue(lambda: pass_gate(gate))
    assert acl.rt.record_event(end, stream) == 0
    assert acl.rt.query_event_status(end) == (0, 0)
    assert acl.rt.stream_wait_event(0, end) == 0
    gate.set()
    assert acl.rt.synchronize_event(end) == 0
    assert acl.rt.query_event_status(end) == (1, 0)
    ms, ret = acl.rt.event_elapsed_time(start, end)
    assert ret == 0
    assert ms > 0
    assert acl.rt.reset_event(end, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.rt.query_event_status(end) == (0, 0)
    assert acl.rt.destroy_event(start) == acl.rt.destroy_event(end) == 0


def test_calls_without_a_status_return_the_value_alone(fresh: None) -> None:
    assert acl.get_soc_name() == "Ascend910B2"
    assert acl.get_version() == (1, 17, 0, 0)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: acl.rt.set_device(5), 107001),
        (lambda: acl.rt.create_context(5), (0, 107001)),
        (lambda: acl.rt.malloc(0, 0), (0, 100000)),
        (lambda: acl.rt.malloc_host(0), (0, 100000)),
        (lambda: acl.rt.get_mem_info(99), (0, 0, 107016)),
        (lambda: acl.rt.event_elapsed_time(0, 0), (0.0, 100000)),
        (lambda: acl.rt.free(0), 100000),
        (lambda: acl.rt.memcpy(0, 0, 0, 8, 1), 100000),
        (lambda: acl.rt.synchronize_stream(0), 107002),
    ],
)
def test_status_comes_last_and_error_text_is_that_of_the_c_interface(fresh: None, call: object, result: object) -> None:
    assert callable(call)
    assert call() == result
    assert "acl" in recent_error()
    assert call() == result
    assert acl.get_recent_err_msg() is not None


def test_handles_and_memory_are_shared_with_the_c_interface(device: None) -> None:
    stream, _ = acl.rt.create_stream()
    there, _ = acl.rt.malloc(64, 0)
    assert cann.aclrtMemsetAsync(there, 64, 7, 64, stream) == 0
    assert cann.aclrtSynchronizeStream(stream) == 0
    assert acl.util.ptr_to_bytes(there, 64) == b"\x07" * 64
    assert cann.aclrtFree(there) == cann.aclrtDestroyStream(stream) == 0
    assert acl.rt.free(there) == 107000


def test_every_name_of_pyacl_exists() -> None:
    assert all(map(callable, (acl.init, acl.finalize, acl.get_soc_name, acl.get_version, acl.get_recent_err_msg)))
    assert all(map(callable, vars(acl.rt).values()))
    assert len(vars(acl.rt)) == 32


def test_bytes_survive_bytes_to_ptr_and_ptr_to_bytes(fresh: None) -> None:
    for data in (b"", b"x", b"a\x00b" * 100):
        assert acl.util.ptr_to_bytes(acl.util.bytes_to_ptr(data), len(data)) == data


TYPES = [
    (0, np.bool_),
    (1, np.int8),
    (2, np.uint8),
    (3, np.int16),
    (4, np.uint16),
    (5, np.int32),
    (6, np.uint32),
    (7, np.int64),
    (8, np.uint64),
    (11, np.float32),
    (12, np.float64),
    (23, np.float16),
]


@pytest.mark.parametrize(("number", "dtype"), TYPES)
def test_ptr_to_numpy_views_memory(number: int, dtype: type[np.generic]) -> None:
    array = np.ones((2, 3), dtype)
    view = acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (2, 3), number)
    assert view.dtype == dtype
    assert np.array_equal(view, array)
    view[1, 2] = 0
    assert array[1, 2] == 0
    assert acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (0, 3), number).shape == (0, 3)
    assert acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), (), number).shape == ()


def test_numpy_to_ptr_ignores_strides_and_numpy_contiguous_to_ptr_rejects_them() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert acl.util.numpy_to_ptr(array.T) == acl.util.numpy_to_ptr(array)
    with pytest.raises(ValueError, match="C-contiguous"):
        acl.util.numpy_contiguous_to_ptr(array.T)


def test_invalid_arguments_of_acl_util_raise(device: None) -> None:
    with pytest.raises(TypeError, match="bytes_to_ptr"):
        acl.util.bytes_to_ptr("text")
    for call in (
        lambda: acl.util.ptr_to_bytes(0, 1),
        lambda: acl.util.ptr_to_bytes(64, -1),
        lambda: acl.util.ptr_to_numpy(0, (1,), 11),
        lambda: acl.util.ptr_to_numpy(64, (-1,), 11),
        lambda: acl.util.ptr_to_numpy(64, (1,), 9),
    ):
        with pytest.raises(ValueError, match=r"acl\.util"):
            call()
    there, _ = acl.rt.malloc(8, 0)
    with pytest.raises(AclnnError, match="1 bytes beyond"):
        acl.util.ptr_to_bytes(there, 9)
    acl.rt.free(there)
    with pytest.raises(AclnnError, match="was freed"):
        acl.util.ptr_to_numpy(there, (2,), 11)


def test_acl_op_execute_v2_runs_an_operator_by_its_type(fresh: None) -> None:
    acl.init()
    acl.rt.set_device(0)
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    there, ret = acl.rt.malloc(data.nbytes, 0)
    assert ret == 0
    back, _ = acl.rt.malloc(data.nbytes, 0)
    acl.rt.memcpy(there, data.nbytes, acl.util.numpy_to_ptr(data), data.nbytes, cann.ACL_MEMCPY_HOST_TO_DEVICE)
    order = np.array([1, 0])
    read = [acl.create_tensor_desc(cann.ACL_FLOAT, [2, 3], cann.ACL_FORMAT_ND)]
    read.append(acl.create_tensor_desc(cann.ACL_INT64, [2], cann.ACL_FORMAT_ND))
    assert acl.set_tensor_const(read[1], acl.util.numpy_to_ptr(order), order.nbytes) == 0
    written = acl.create_tensor_desc(cann.ACL_FLOAT, (3, 2), cann.ACL_FORMAT_ND)
    assert acl.get_tensor_desc_dim_v2(written, 0) == (3, 0)
    assert acl.get_tensor_desc_size(written) == data.nbytes
    buffers = [acl.create_data_buffer(there, data.nbytes), acl.create_data_buffer(0, 0)]
    result = acl.create_data_buffer(back, data.nbytes)
    attr = acl.op.create_attr()
    assert acl.op.set_attr_int(attr, "a", 1) == acl.op.set_attr_list_int(attr, "b", order) == 0
    assert acl.op.execute_v2("Transpose", read, buffers, [written], [result], attr, 0) == 0
    assert (
        acl.op.execute_v2("Transposed", read, buffers, [written], [result], None, 0) == cann.ACL_ERROR_API_NOT_SUPPORT
    )
    assert acl.rt.synchronize_stream(0) == 0
    assert acl.util.ptr_to_bytes(back, data.nbytes) == data.T.tobytes()
    acl.op.destroy_attr(attr)
    with pytest.raises(TypeError, match="missing a required argument: 'stream'"):
        acl.op.execute_v2("Transpose", read, buffers, [written], [result], None)
    assert acl.destroy_data_buffer(result) == 0


def test_execute_v2_rejects_descriptions_and_buffers_of_unequal_counts(device: None) -> None:
    desc, buffer = acl.create_tensor_desc(cann.ACL_FLOAT, [2], cann.ACL_FORMAT_ND), acl.create_data_buffer(0, 0)
    with pytest.raises(
        ValueError, match="inputDesc, inputs: expected equally many elements, got 2 of inputDesc, 1 of inp"
    ):
        acl.op.execute_v2("Relu", [desc, desc], [buffer], [desc], [buffer], 0, 0)
    assert acl.op.execute_v2("Relu", None, [buffer], [desc], [buffer], 0, 0) == 100000


def test_help_shows_arguments_and_results() -> None:
    assert str(inspect.signature(acl.rt.malloc)) == "(size: int, policy: int = 0) -> tuple[int, int]"
    assert inspect.getdoc(acl.rt.malloc).endswith("Returns ``(devPtr, ret)``.")
    assert [*inspect.signature(acl.create_tensor_desc).parameters] == ["dataType", "dims", "format"]
    assert str(inspect.signature(acl.rt.event_elapsed_time)).endswith("-> tuple[float, int]")
