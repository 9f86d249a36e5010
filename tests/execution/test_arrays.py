"""The Python functions: what they take for arrays and attributes, what they reject, and that they copy nothing."""

from __future__ import annotations

import math
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.products import set_soc_name
from aclnn.core.status import AclnnError
from aclnn.execution import arrays, dlpack
from aclnn.execution.executor import prepare
from aclnn.support.bounded import BoundedCache
from tests.cases import CASES
from tests.cases.table import FLOATS, INVALID, MODERN, NULL, SOC_NAMES, Case, Rejected, T, changed
from tests.helpers.exact import BFLOAT16, NUMPY

torch = pytest.importorskip("torch")  # an extra

X = np.linspace(-4, 4, 12, dtype=np.float32).reshape(3, 4)
DY = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)


class Interface:
    """An array with ``__array_interface__`` alone."""

    def __init__(self, array: np.ndarray[Any, Any], **changes: Any) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__ | changes


class Capsuled:
    """An array whose DLPack capsule has fields that NumPy's never sets."""

    def __init__(self, array: np.ndarray[Any, Any], **fields: int) -> None:
        self.array = array
        self.fields = fields

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> object:
        capsule = self.array.__dlpack__()
        tensor = dlpack._DLTensor.from_address(dlpack._pointer_of(capsule, b"dltensor"))
        for name, value in self.fields.items():
            setattr(tensor, name, value)
        return capsule


class Negative(Capsuled):
    """An array with a negative number of rows."""

    def __dlpack__(self) -> object:
        capsule = super().__dlpack__()
        dlpack._DLTensor.from_address(dlpack._pointer_of(capsule, b"dltensor")).shape[0] = -3
        return capsule


class Unversioned:
    """An array of a library older than DLPack 1.0, whose capsules cannot say that their memory is read-only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> object:
        return self.array.__dlpack__()


class UnversionedInterface(Unversioned):
    """An ``Unversioned`` array that also has ``__array_interface__``."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__


class UnversionedTensor(torch.Tensor):  # type: ignore[misc]
    """A torch tensor as older versions of PyTorch export it."""

    def __dlpack__(self) -> object:
        return super().__dlpack__()


class Elsewhere:
    """An array on a CUDA device, as DLPack sees it."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **_: Any) -> object:
        raise AssertionError("an array on another device must not be exported")


class Broken:
    """An array whose export returns, or raises, a given object."""

    def __init__(self, device: Any, capsule: Any) -> None:
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self.given(self.device)

    def __dlpack__(self, **_: Any) -> Any:
        return self.given(self.capsule)

    def given(self, what: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what


def error_of(call: Any, *arguments: Any, **keywords: Any) -> AclnnError:
    with pytest.raises(AclnnError) as caught:
        call(*arguments, **keywords)
    return caught.value


def silu_of(dy: Any, x: Any, **keywords: Any) -> Any:
    return aclnn.silu_backward(dy, x, **keywords)


@pytest.mark.parametrize(("rank", "label"), [(2, "ND"), (3, "NCL"), (4, "NCHW"), (5, "NCDHW"), (6, "ND")])
def test_arrays_are_labelled_by_their_rank_as_torch_npu_does(rank: int, label: str) -> None:
    """Functions that reject ACL_FORMAT_ND, such as aclnnUpsampleNearest2d, accept arrays of the right rank."""
    array = np.zeros((1,) * rank, np.float32)
    for one in (array, torch.from_numpy(array)):
        assert arrays.view(one).format.c_name == f"ACL_FORMAT_{label}"


def test_a_view_shares_the_arrays_memory() -> None:
    for array in (X, X.T, X[::-1, ::2], X[1:, 1:], X.astype(BFLOAT16)[::2], np.float32(1) + X[:0]):
        tensor = arrays.view(array)
        assert tensor.address == array.__array_interface__["data"][0]
        assert tensor.shape == array.shape
        assert tuple(stride * array.itemsize for stride in tensor.strides) == array.strides
        assert tensor.owner is array


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_torch_tensor_is_viewed_in_place(dtype: Any) -> None:
    storage = torch.arange(24).reshape(4, 6).to(dtype)
    for tensor in (storage, storage.t(), storage[1:, ::2], storage[0, 0], storage[:0], storage.expand(2, 4, 6)):
        view = arrays.view(tensor)
        # An empty tensor has no address in DLPack.
        assert view.address == (tensor.data_ptr() if tensor.numel() else 0)
        assert view.shape == tuple(tensor.shape)
        assert [s for s, e in zip(view.strides, view.shape, strict=True) if e > 1] == [
            s for s, e in zip(tensor.stride(), tensor.shape, strict=True) if e > 1
        ]
        assert view.dtype.torch_name == str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_torch_tensors_give_what_numpy_arrays_give(dtype: Any) -> None:
    dy, x = torch.from_numpy(DY).to(dtype), torch.from_numpy(X).to(dtype)
    out = torch.full_like(x, torch.nan).t().contiguous().t()
    name = {torch.float32: np.float32, torch.float16: np.float16, torch.bfloat16: BFLOAT16}[dtype]
    expected = silu_of(DY.astype(name), X.astype(name))
    assert silu_of(dy, x, out=out) is out
    assert out.float().numpy().tolist() == expected.astype(np.float32).tolist()
    assert silu_of(dy.t(), x.t()).T.tobytes() == expected.tobytes()


def test_torch_tensors_are_checked_in_every_call() -> None:
    """Tensors with equal descriptions are checked separately: some have no memory, or none to share."""
    x, out = torch.from_numpy(X.copy()), torch.empty(3, 4)
    for _ in range(2):
        silu_of(x, x, out=out)
        with torch.inference_mode():
            assert silu_of(x.clone(), x, out=out) is out
        for other in (
            x.clone().requires_grad_(),
            x.to("meta"),
            torch.complex(x, -x).conj().imag,
            x.to_sparse(),
            x.to_mkldnn(),
        ):
            assert error_of(silu_of, x, other, out=out).code == INVALID
            assert error_of(silu_of, x, x, out=other).code == INVALID
    assert out.numpy().tobytes() == silu_of(X, X).tobytes()


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.functionalize], ids=lambda f: f.__name__)
def test_tensors_within_a_transformation_have_no_memory(transform: Any) -> None:
    """Tensors of functionalize export a null address."""
    x = torch.ones(3, 4)
    silu_of(x[0], x[0])
    silu_of(x, x)

    def inside(tensor: Any) -> Any:
        assert error_of(silu_of, tensor, tensor).code == INVALID
        return tensor

    transform(inside)(x)


def test_calls_that_differ_in_layout_alone_have_separate_plans() -> None:
    """Calls that differ in layout alone have separate plans, in any order, also for objects with changed layouts."""
    rng = np.random.default_rng(5)
    base = [rng.standard_normal(48).astype(np.float32) for _ in range(3)]
    layouts = [(48,), (2, 4, 6), (6, 8)]
    expected = silu_of(base[0], base[1]).tobytes()
    for _ in range(3):
        for dy, x, out in ([array.copy() for array in base], [torch.from_numpy(array.copy()) for array in base]):
            for shape in layouts:
                if isinstance(dy, torch.Tensor):
                    for tensor in (dy, x, out):
                        tensor.resize_(shape)
                else:
                    dy.shape, x.shape, out.shape = shape, shape, shape
                assert silu_of(dy, x, out=out) is out
                assert np.asarray(out).tobytes() == expected
            turned = silu_of(dy.T, x.T, out=out.T)
            assert turned.shape == tuple(reversed(shape))
            assert np.asarray(out).tobytes() == expected
            error_of(silu_of, dy, x.T)


def test_an_output_that_was_writable_before_is_checked_again() -> None:
    out = np.empty_like(X)
    silu_of(DY, X, out=out)
    out.flags.writeable = False
    assert "read-only" in error_of(silu_of, DY, X, out=out).message
    out.flags.writeable = True
    silu_of(DY, X, out=out)


@pytest.mark.slow
def test_many_threads_make_calls_of_many_layouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share cached calls, some of which are evicted."""
    monkeypatch.setattr(BoundedCache, "limit", 5)
    rng = np.random.default_rng(6)
    inputs = [[rng.standard_normal((n, 7)).astype(np.float32) for _ in range(2)] for n in range(1, 12)]
    expected = [silu_of(dy, x).tobytes() for dy, x in inputs]

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, len(inputs), 300):
            dy, x = inputs[i]
            out = np.full_like(x, np.nan)
            assert silu_of(dy, x, out=out) is out
            assert out.tobytes() == expected[i]
            assert silu_of(dy, x).tobytes() == expected[i]

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(work, seed) for seed in range(8)]:
            future.result()


def test_an_array_interface_is_read_and_written_in_place() -> None:
    out = np.full_like(X, np.nan)
    wrapped = Interface(out)
    assert silu_of(Interface(DY), Interface(X), out=wrapped) is wrapped
    assert out.tobytes() == silu_of(DY, X).tobytes()


def test_a_capsules_elements_begin_at_its_byte_offset() -> None:
    whole = np.linspace(-4, 4, 16, dtype=np.float32)
    shifted = Capsuled(whole[:12], byte_offset=16)
    assert silu_of(DY.ravel(), shifted).tobytes() == silu_of(DY.ravel(), whole[4:]).tobytes()


def test_subclasses_of_arrays_are_arrays(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    mapped[...] = X
    assert silu_of(DY, mapped).tobytes() == silu_of(DY, X).tobytes()
    silu_of(DY, X, out=mapped)
    assert mapped.tobytes() == silu_of(DY, X).tobytes()


def test_a_scalar_is_an_input_without_dimensions() -> None:
    result = silu_of(np.float32(1), np.float32(0))
    assert result.shape == ()
    assert result == 0.5


def test_fields_of_records_are_strided_arrays() -> None:
    record = np.zeros(5, [("x", np.float32), ("y", np.float32)])
    record["x"] = np.arange(5) - 2
    assert silu_of(np.ones(5, np.float32), record["x"]).tobytes() == (
        silu_of(np.ones(5, np.float32), np.arange(5, dtype=np.float32) - 2).tobytes()
    )
    silu_of(np.ones(5, np.float32), record["x"], out=record["y"])
    assert record["x"].tolist() == [-2, -1, 0, 1, 2]
    assert record["y"].tobytes() == silu_of(np.ones(5, np.float32), record["x"]).tobytes()


def test_packed_fields_with_misaligned_strides_are_rejected() -> None:
    record = np.zeros(5, np.dtype([("x", np.float32), ("tag", np.int16)]))
    error = error_of(silu_of, np.ones(5, np.float32), record["x"])
    assert error.message == "aclnnSiluBackward: self: expected strides in multiples of 4 bytes, got [6]"
    # Of a single element there is nothing to step over.
    assert silu_of(np.ones(1, np.float32), record["x"][:1]).tolist() == [0.5]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_unaligned_arrays_give_the_same_results(dtype: Any, shift: int) -> None:
    def unaligned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        buffer = np.zeros(array.nbytes + 8, np.uint8)
        view = buffer[shift : shift + array.nbytes].view(dtype).reshape(array.shape)
        view[...] = array
        return view

    rng = np.random.default_rng(shift)
    for n in (1, 5, 64, 1000, 70_001):
        dy, x = (rng.normal(size=n).astype(dtype) for _ in range(2))
        out = unaligned(np.zeros(n, dtype))
        silu_of(unaligned(dy), unaligned(x), out=out)
        assert out.tobytes() == silu_of(dy, x).tobytes()


def test_inputs_and_outputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    original = arrays.prepare

    def spy(operator: Any, arguments: Any) -> Any:
        executor = original(operator, arguments)
        seen.append([tensor.first for tensor in executor.tensors.values()])
        return executor

    monkeypatch.setattr(arrays, "prepare", spy)
    dy, x = torch.from_numpy(DY.copy()).t(), Interface(X.T)
    out = np.empty((8, 6), np.float32)[::2, ::2]
    silu_of(dy, x, out=out)
    assert seen == [[dy.data_ptr(), X.ctypes.data, out.ctypes.data]]


def test_results_are_new_contiguous_arrays_of_the_inputs_type() -> None:
    for dtype in (np.float32, np.float16, BFLOAT16):
        result = silu_of(DY.astype(dtype).T, X.astype(dtype).T)
        assert type(result) is np.ndarray
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert result.dtype == dtype
        assert result.shape == (4, 3)


def test_large_results_start_on_a_cache_line() -> None:
    x = np.zeros(100_000, np.float32)
    assert all(silu_of(x, x).ctypes.data % 64 == 0 for _ in range(5))


NOT_ARRAYS = {
    "a list": ([[1.0]], "expected an array on the CPU", "builtins.list"),
    "a number": (1.0, "expected an array on the CPU", "builtins.float"),
    "text": ("x", "expected an array on the CPU", "builtins.str"),
    "objects": (np.array([object()]), "expected a data type that ACL has", "dtype('O')"),
    "strings": (np.array(["x"]), "expected a data type that ACL has", "<U1"),
    "dates": (np.zeros(1, "datetime64[s]"), "expected a data type that ACL has", "<M8[s]"),
    "records": (np.zeros(1, [("x", "f4")]), "expected a data type that ACL has", "[('x', '<f4')]"),
    "long double": (np.zeros(1, np.longdouble), "expected a data type that ACL has", "float"),
    "another byte order": (X.astype(">f4"), "expected a data type that ACL has", ">f4"),
    "another device": (Elsewhere(), "expected an array on the CPU", "DLPack device 2:0"),
    "a tensor with gradient": (torch.ones(3, 4, requires_grad=True), "use tensor.detach()", "torch.Tensor"),
    "a tensor without memory": (torch.ones(3, 4, device="meta"), "expected an array on the CPU", "torch.Tensor"),
    "a conjugate": (torch.ones(3, 4, dtype=torch.complex64).conj(), "conjugate bit", "torch.Tensor"),
    "a negated view": (torch.ones(3, 4, dtype=torch.complex64).conj().imag, "negative bit", "torch.Tensor"),
    "a sparse tensor": (torch.ones(3, 4).to_sparse(), "layout", "torch.Tensor"),
    "torch's own 8-bit float": (torch.ones(3, 4, dtype=torch.float8_e5m2), "expected a data type", "8 bits"),
    "vectors for elements": (Capsuled(X, lanes=2), "expected a data type that ACL has", "with 32 bits"),
    "a device that cannot be told": (Broken(KeyError("which"), None), "that shares its memory ('which')", "Broken"),
    "a device that is no pair": (Broken(1, None), "that shares its memory ('int' object", "Broken"),
    "a failing export": (Broken((1, 0), LookupError("where")), "that shares its memory (where)", "Broken"),
    "no capsule": (Broken((1, 0), 5), "expected an array that exports a DLPack capsule", "which gave 5"),
    "a negative extent": (Negative(X.copy()), "expected extents of at least 0", "[-3, 4]"),
    "a broken interface": (Interface(X, shape=(-1,)), "expected a sound __array_interface__", "Interface"),
}


@pytest.mark.parametrize("kind", NOT_ARRAYS)
def test_objects_other_than_arrays_are_rejected(kind: str) -> None:
    value, expected, got = NOT_ARRAYS[kind]
    out = np.full_like(X, 7)
    for arguments, name in (((value, X, out), "grad_output"), ((DY, value, out), "self"), ((DY, X, value), "out")):
        error = error_of(aclnn.silu_backward, *arguments)
        assert error.code == INVALID
        assert error.message.startswith(f"aclnnSiluBackward: {name}: expected ")
        assert expected in error.message
        assert got in error.message.rsplit(", got ", 1)[1]
    assert (out == 7).all()


_NULLABLE = {"INPUT": "an array", "STRING": "a string", "SCALAR": "a number"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_errors_say_none_instead_of_null(case: Case) -> None:
    required = [p for p in case.operator.parameters if p.kind.name in _NULLABLE and not p.optional]
    for parameter in required:
        arguments = case.call(D.FLOAT) | {parameter.name: None}
        inputs, attributes, _ = python_arguments(case, arguments)
        error = error_of(arrays.call, case.operator, inputs, tuple(attributes), (None,) * len(case.operator.outputs))
        assert error.code == NULL
        wanted = _NULLABLE[parameter.kind.name]
        assert error.message == f"{case.operator.function}: {parameter.python_name}: expected {wanted}, got None"


def test_outputs_that_cannot_be_written_are_rejected() -> None:
    frozen = X.copy()
    frozen.flags.writeable = False
    cases = {
        "a read-only one": frozen,
        "a read-only one ": np.broadcast_to(np.float32(0), X.shape),
        "the value numpy.float32": np.float32(0),
    }
    for got, out in cases.items():
        error = error_of(silu_of, DY, X, out=out)
        assert error.code == INVALID
        assert error.message.startswith("aclnnSiluBackward: out: expected a")
        assert error.message.endswith(f"got {got.strip()}")
    assert frozen.tobytes() == X.tobytes()
    read_only_interface = Interface(X, data=(X.ctypes.data, True))
    assert "read-only" in error_of(silu_of, DY, X, out=read_only_interface).message


def rejects_to_write(array: Any) -> None:
    before = np.array(array)
    for error in (error_of(aclnn.silu, before, out=array), error_of(aclnn.inplace_hardswish, array)):
        assert error.code == INVALID
        assert "expected a writable array, got " in error.message
    assert np.asarray(array).tobytes() == before.tobytes()


def test_an_immutable_array_without_a_read_only_flag_was_overwritten() -> None:
    class Immutable(Unversioned):
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return self.array

    rejects_to_write(Immutable(X.copy()))


def test_an_immutable_array_of_jax_was_overwritten() -> None:
    jax_numpy = pytest.importorskip("jax.numpy")
    rejects_to_write(jax_numpy.asarray(X))
    assert silu_of(jax_numpy.asarray(DY), jax_numpy.asarray(X)).tobytes() == silu_of(DY, X).tobytes()


def test_an_array_without_a_read_only_flag_is_written_where_it_is_known_to_be_writable() -> None:
    expected = aclnn.silu(X)
    for out in (UnversionedInterface(np.zeros_like(X)), torch.zeros(3, 4).as_subclass(UnversionedTensor)):
        assert aclnn.silu(X, out=out) is out
        assert np.asarray(out).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("out", "text"),
    [
        (np.full((4, 3), 7, np.float32), "out: expected shape [3, 4], got [4, 3]"),
        (np.full((3, 4), 7, np.float16), "out: expected data type ACL_FLOAT, got ACL_FLOAT16"),
        (np.full((3, 4), 7, np.int32), "out: expected data type ACL_FLOAT, got ACL_INT32"),
    ],
)
def test_outputs_that_do_not_fit_are_rejected_untouched(out: np.ndarray[Any, Any], text: str) -> None:
    error = error_of(silu_of, DY, X, out=out)
    assert error.code == INVALID
    assert text in error.message
    assert (out == 7).all()


def test_several_outputs_come_in_a_tuple() -> None:
    x, mean, rstd = X, X.mean(1), np.ones(3, np.float32)
    for out in (np.zeros((3, 4), np.float32), (None, None), "abc", None):
        error = error_of(aclnn.layer_norm_backward, DY, x, (4,), mean, rstd, out=out)
        assert error.code == INVALID
        assert error.message.startswith("aclnnLayerNormBackward: out: expected a tuple of 3 arrays or None, got ")


def test_unrequested_gradients_are_none_and_unwritten() -> None:
    given = [np.full(shape, 7, np.float32) for shape in ((3, 4), (4,), (4,))]
    for mask in ((True, False, True), (False, True, False), (False, False, False)):
        for _ in range(2):  # checked, and checked before
            results = aclnn.layer_norm_backward(
                DY, X, (4,), X.mean(1), np.ones(3, np.float32), output_mask=mask, out=given
            )
            for expected, out, result in zip(mask, given, results, strict=True):
                assert result is (out if expected else None)
                assert (out == 7).all() != expected
                out[...] = 7
            assert [
                r is not None
                for r in aclnn.layer_norm_backward(DY, X, (4,), X.mean(1), np.ones(3, np.float32), output_mask=mask)
            ] == list(mask)


ATTRIBUTES: list[tuple[dict[str, Any], str]] = [
    ({"normalized_shape": 4}, "normalized_shape: expected a sequence of integers, got 4"),
    ({"normalized_shape": (4.0,)}, "normalized_shape: expected a sequence of integers, got (4.0,)"),
    ({"normalized_shape": "4"}, "normalized_shape: expected a sequence of integers, got '4'"),
    ({"normalized_shape": (float("inf"),)}, "normalized_shape: expected a sequence of integers, got (inf,)"),
    ({"normalized_shape": (-4,)}, "input: expected trailing dimensions [-4], got [4]"),
    ({"normalized_shape": (2**62,)}, f"input: expected trailing dimensions [{2**62}], got [4]"),
    ({"normalized_shape": (1, 2, 3)}, "input: expected at least 3 dimensions (as normalized_shape), got 2"),
    ({"normalized_shape": ()}, "normalized_shape: expected at least 1 dimension, got 0"),
    ({"output_mask": (True, True)}, "output_mask: expected 3 values, got 2"),
    ({"output_mask": (True,) * 4}, "output_mask: expected 3 values, got 4"),
    ({"output_mask": True}, "output_mask: expected a sequence of booleans, got True"),
    ({"output_mask": (2, 0, 0)}, "output_mask: expected a sequence of booleans, got (2, 0, 0)"),
    ({"output_mask": None}, "output_mask: expected a sequence of booleans, got None"),
    ({"normalized_shape": None}, "normalized_shape: expected a sequence of integers, got None"),
]


@pytest.mark.parametrize(("keywords", "text"), ATTRIBUTES)
def test_layer_norm_backward_rejects_invalid_attributes(keywords: dict[str, Any], text: str) -> None:
    arguments = {"normalized_shape": (4,), "mean": X.mean(1), "rstd": np.ones(3, np.float32)} | keywords
    assert error_of(aclnn.layer_norm_backward, DY, X, **arguments).message == f"aclnnLayerNormBackward: {text}"


def test_attributes_may_be_any_sequence() -> None:
    mean, rstd = X.mean(1), np.ones(3, np.float32)
    expected = aclnn.layer_norm_backward(DY, X, (4,), mean, rstd, output_mask=(True, False, True))
    for shape, mask in (
        ([4], [True, False, True]),
        (np.array([4]), np.array([True, False, True])),
        (torch.Size([4]), (1, 0, 1)),
        ((np.int32(4),), (np.True_, np.False_, 1)),
    ):
        results = aclnn.layer_norm_backward(DY, X, shape, mean, rstd, output_mask=mask)
        assert results[1] is None
        assert [r.tobytes() for r in results[::2]] == [e.tobytes() for e in expected[::2]]


@pytest.mark.parametrize("value", ["Tanh", "", "none "])
def test_unknown_approximations_are_rejected(value: str) -> None:
    error = error_of(aclnn.gelu_backward_v2, DY, X, value)
    assert error.message == f"aclnnGeluBackwardV2: approximate: expected 'none' or 'tanh', got {value!r}"


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("x" * 78, f"'{'x' * 78}'"),
        ("x" * 79, f"'{'x' * 78}…"),
        ("x" * 2**20, f"'{'x' * 78}…"),
        (b"tanh\xff\x80".decode(errors="surrogateescape"), r"'tanh\xff\x80'"),
        ("é\n\0", r"'é\n\x00'"),
    ],
    ids=["80 characters", "81", "a megabyte", "not UTF-8", "control characters"],
)
def test_a_rejected_text_is_shown_readable_and_no_longer_than_a_line(value: str, got: str) -> None:
    error = error_of(aclnn.gelu_backward_v2, DY, X, value)
    assert error.message == f"aclnnGeluBackwardV2: approximate: expected 'none' or 'tanh', got {got}"


@pytest.mark.parametrize("value", ["4" * 2**20, [4.5] * 2**20])
def test_a_rejected_attribute_is_shown_no_longer_than_a_line(value: Any) -> None:
    error = error_of(aclnn.layer_norm_backward, DY, X, value, X.mean(1), np.ones(3, np.float32))
    got = repr(value)[:79] + "…"
    assert error.message == f"aclnnLayerNormBackward: normalized_shape: expected a sequence of integers, got {got}"


@pytest.mark.parametrize("value", [1, ["none"], b"none"])
def test_approximations_other_than_strings_are_rejected(value: Any) -> None:
    error = error_of(aclnn.gelu_backward_v2, DY, X, value)
    assert error.message == f"aclnnGeluBackwardV2: approximate: expected a string, got {value!r}"


def test_forward_functions_reject_attributes_that_are_not_numbers() -> None:
    for value in ("tanh", 1.0, None, [1]):
        error = error_of(aclnn.gelu_v2, X, value)
        assert error.message == f"aclnnGeluV2: approximate: expected an integer, got {value!r}"
    for eps in ("1e-5", None, [1], 1j):
        error = error_of(aclnn.layer_norm, X, (4,), eps=eps)
        assert error.message == f"aclnnLayerNorm: eps: expected a number, got {eps!r}"


def python_arguments(case: Case, arguments: dict[str, Any]) -> tuple[list[Any], list[Any], list[Any]]:
    def array(value: Any) -> Any:
        return np.full(value.shape, 1, value.dtype.numpy) if isinstance(value, T) else value

    operator = case.operator
    return (
        [array(arguments[p.name]) for p in operator.inputs],
        [arguments[p.name] for p in operator.attributes],
        [array(arguments[p.name]) for p in operator.outputs],
    )


_MOST = 1 << 20


def of_arrays(error_of: Rejected) -> bool:
    """True if arrays can express it: they have no format, no undefined data type, and None creates an output.

    Nor are there arrays of gigabytes, which killed the process that made them.
    """
    for name, new in error_of.change.items():
        if isinstance(new, dict) and ("format" in new or new.get("dtype") == D.DT_UNDEFINED):
            return False
        if isinstance(new, dict) and not callable(new.get("shape", ())) and math.prod(new.get("shape", ())) > _MOST:
            return False
        if new is None and any(p.name == name for case in CASES for p in case.operator.outputs):
            return False
    return True


@pytest.mark.parametrize(
    ("case", "row"),
    [
        pytest.param(case, row, id=f"{case.name}-{place}-{row.argument}")
        for case in CASES
        for place, row in enumerate(case.rejected)
        if of_arrays(row)
    ],
)
def test_errors_have_the_executors_codes_and_the_callers_names_and_touch_nothing(case: Case, row: Rejected) -> None:
    product = row.products[0]
    set_soc_name(SOC_NAMES[product])
    dtype = row.dtypes[0]
    inputs, attributes, outs = python_arguments(case, changed(case.call(dtype), row.change))
    before = [None if array is None else array.tobytes() for array in (*inputs, *outs)]
    error = error_of(arrays.call, case.operator, inputs, tuple(attributes), tuple(outs))
    assert [None if array is None else array.tobytes() for array in (*inputs, *outs)] == before
    views = [None if array is None else arrays.view(array) for array in (*inputs, *outs)]
    names = [p.name for p in (*case.operator.inputs, *case.operator.outputs)]
    bound = dict(zip(names, views, strict=True)) | dict(
        zip((p.name for p in case.operator.attributes), attributes, strict=True)
    )
    with pytest.raises(AclnnError) as caught:
        prepare(case.operator, bound, product)
    assert error.code == caught.value.code == row.code
    foreign = {p.name for p in case.operator.parameters} - {p.python_name for p in case.operator.parameters} - {"out"}
    assert not foreign & set(re.findall(r"\w+", error.message))


@pytest.mark.parametrize(
    ("arguments", "out", "text"),
    [
        ((DY, X), np.zeros((4, 3), np.float32), "out: expected shape [3, 4], got [4, 3]"),
        ((DY, X), np.zeros((3, 4)), "out: expected data type ACL_FLOAT, got ACL_DOUBLE"),
        ((DY, X.T), None, "self: expected shape [3, 4] (that of grad_output), got [4, 3]"),
        ((DY, X.T), np.zeros_like(X), "self: expected shape [3, 4] (that of grad_output), got [4, 3]"),
        ((DY, X.T), np.zeros((4, 3), np.float32), "self: expected shape [3, 4] (that of grad_output), got [4, 3]"),
    ],
)
def test_an_out_that_does_not_fit_was_the_fault_of_grad_output(arguments: Any, out: Any, text: str) -> None:
    assert error_of(silu_of, *arguments, out=out).message == f"aclnnSiluBackward: {text}"


def test_of_several_outputs_the_one_that_does_not_fit_is_named() -> None:
    mean, rstd = X.mean(1), np.ones(3, np.float32)
    error = error_of(aclnn.layer_norm_backward, DY, X, (4,), mean, rstd, out=(X.copy(), mean, None))
    assert error.message == "aclnnLayerNormBackward: out[1]: expected shape [4], got [3]"


class Series:
    """Data with ``__array__`` alone, such as pandas'."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return X


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        (X.tolist(), "np.asarray(x, np.float32) makes one of it"),
        (Series(), "np.asarray(x, np.float32) makes one of it"),
        (X.astype(np.float64), ".astype(np.float32) converts it"),
        (X.astype(">f4"), ".astype('<f4') converts it"),
    ],
    ids=["list", "series", "float64", "big-endian"],
)
def test_errors_for_convertible_data_name_the_conversion(value: Any, cure: str) -> None:
    assert error_of(silu_of, DY, value).message.endswith(f": {cure}")


def test_data_types_are_checked_for_the_current_product() -> None:
    x = X.astype(BFLOAT16)
    for product, name in SOC_NAMES.items():
        set_soc_name(name)
        if product in MODERN:
            assert silu_of(x, x).dtype == BFLOAT16
        else:
            assert error_of(silu_of, x, x).code == INVALID


@pytest.mark.parametrize("dtype", [NUMPY[dtype] for dtype in FLOATS], ids=str)
def test_equal_calls_give_equal_results(dtype: np.dtype[Any]) -> None:
    dy, x = DY.astype(dtype), X.astype(dtype)
    first = silu_of(dy, x)
    for _ in range(3):
        again = silu_of(dy, x)
        assert again is not first
        assert again.tobytes() == first.tobytes()
    other = silu_of(dy[::-1], x[::-1])
    assert other[::-1].tobytes() == first.tobytes()


MASKS = [(True, True, True), (True, False, True), (False, True, False), (False, False, True)]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("as_tensors", [True, False])
def test_equal_calls_of_layer_norm_give_equal_results(mask: tuple[bool, ...], weighted: bool, as_tensors: bool) -> None:
    """Equal calls with absent arguments and results, given and new outputs, and a workspace."""
    rng = np.random.default_rng(4)
    given = torch.from_numpy if as_tensors else np.asarray

    def normal(*shape: int) -> Any:
        return given(rng.standard_normal(shape).astype(np.float32))

    dy, x, weight = normal(40, 70), normal(40, 70), normal(70) if weighted else None
    mean, rstd = normal(40, 1), normal(40, 1)

    def call(out: Any = (None, None, None)) -> tuple[bytes | None, ...]:
        results = aclnn.layer_norm_backward(dy, x, [70], mean, rstd, weight, weight, mask, out=out)
        assert all(given is None or result is given for given, result in zip(out, results, strict=True))
        return tuple(None if result is None else np.asarray(result).tobytes() for result in results)

    first = call()
    assert [result is not None for result in first] == list(mask)
    for _ in range(3):
        assert call() == first
        shapes = (40, 70), (70,), (70,)
        assert call([normal(*shape) if want else None for want, shape in zip(mask, shapes, strict=True)]) == first


def test_equal_calls_on_empty_tensors_return_empty_results() -> None:
    nothing = np.ones((0, 3), np.float32)
    for _ in range(3):
        assert silu_of(nothing, nothing).shape == (0, 3)
        assert silu_of(nothing, nothing, out=nothing) is nothing
        error_of(silu_of, nothing, nothing, out=nothing.T)


def test_new_arrays_are_zeros_where_nothing_is_written() -> None:
    """New arrays that a call does not write are zeros, also in a repeated call."""
    x, w = np.zeros((0, 3), np.float32), np.ones(3, np.float32)
    for _ in range(3):
        used = [np.full(3, 7e7, np.float32) for _ in range(64)]
        del used
        assert not np.concatenate(aclnn.batch_norm_backward(x, x)[1:]).any()
        assert not aclnn.prelu_backward(x, x, w)[1].any()
