"""Data types and formats: numbers, sizes and NumPy's equivalents, against the document's tables."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from aclnn.core import dtypes
from aclnn.core.dtypes import DataType, Format
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Scalar

# Number, name, bytes as aclDataTypeSize reports them.
TYPES = """
-1 ACL_DT_UNDEFINED 0
0 ACL_FLOAT 4
1 ACL_FLOAT16 2
2 ACL_INT8 1
3 ACL_INT32 4
4 ACL_UINT8 1
6 ACL_INT16 2
7 ACL_UINT16 2
8 ACL_UINT32 4
9 ACL_INT64 8
10 ACL_UINT64 8
11 ACL_DOUBLE 8
12 ACL_BOOL 1
13 ACL_STRING 0
16 ACL_COMPLEX64 8
17 ACL_COMPLEX128 16
27 ACL_BF16 2
29 ACL_INT4 1
30 ACL_UINT1 1
33 ACL_COMPLEX32 4
34 ACL_HIFLOAT8 1
35 ACL_FLOAT8_E5M2 1
36 ACL_FLOAT8_E4M3FN 1
37 ACL_FLOAT8_E8M0 1
38 ACL_FLOAT6_E3M2 8
39 ACL_FLOAT6_E2M3 8
40 ACL_FLOAT4_E2M1 8
41 ACL_FLOAT4_E1M2 8
"""
ROWS = [(int(n), name, int(size)) for n, name, size in (row.split() for row in TYPES.strip().splitlines())]
# Number, name, whether private.
FORMATS = """
-1 ACL_FORMAT_UNDEFINED 0
0 ACL_FORMAT_NCHW 0
1 ACL_FORMAT_NHWC 0
2 ACL_FORMAT_ND 0
3 ACL_FORMAT_NC1HWC0 1
4 ACL_FORMAT_FRACTAL_Z 1
12 ACL_FORMAT_NC1HWC0_C04 1
16 ACL_FORMAT_HWCN 0
27 ACL_FORMAT_NDHWC 0
29 ACL_FORMAT_FRACTAL_NZ 1
30 ACL_FORMAT_NCDHW 0
32 ACL_FORMAT_NDC1HWC0 1
33 ACL_FRACTAL_Z_3D 1
35 ACL_FORMAT_NC 0
47 ACL_FORMAT_NCL 0
50 ACL_FORMAT_FRACTAL_NZ_C0_16 1
51 ACL_FORMAT_FRACTAL_NZ_C0_32 1
52 ACL_FORMAT_FRACTAL_NZ_C0_2 1
53 ACL_FORMAT_FRACTAL_NZ_C0_4 1
54 ACL_FORMAT_FRACTAL_NZ_C0_8 1
"""


def test_data_type_numbers_are_canns() -> None:
    assert [(int(dtype), dtype.c_name, dtype.itemsize) for dtype in DataType] == ROWS


def test_format_numbers_are_canns() -> None:
    expected = [(int(n), name, bool(int(private))) for n, name, private in map(str.split, FORMATS.strip().splitlines())]
    assert [(int(format), format.c_name, format.private) for format in Format] == expected


@pytest.mark.parametrize("number", [5, 14, 15, 18, 26, 28, 31, 32, 42, 1000, -7])
def test_unassigned_type_numbers_are_kept(number: int) -> None:
    dtype = DataType(number)
    assert dtype == number
    assert hash(dtype) == hash(DataType(number))
    assert dtype.itemsize == 8
    assert dtype.c_name == f"ACL_DT_{number}"
    with pytest.raises(TypeError, match="no NumPy equivalent"):
        _ = dtype.numpy
    assert Format(number + 2000).c_name == f"ACL_FORMAT_{number + 2000}"


@pytest.mark.parametrize("value", ["FLOAT", 0.5, None])
def test_objects_other_than_numbers_have_no_type(value: object) -> None:
    with pytest.raises(ValueError, match="not a valid"):
        DataType(value)
    with pytest.raises(ValueError, match="not a valid"):
        Format(value)


def test_a_type_that_an_older_ml_dtypes_lacks_has_no_equivalent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that ml_dtypes 0.4 lacks must not be an AttributeError."""
    monkeypatch.delattr(ml_dtypes, "float4_e2m1fn", raising=False)
    with pytest.raises(TypeError, match="ACL_FLOAT4_E2M1 has no NumPy equivalent"):
        dtypes._numpy_dtype.__wrapped__(DataType.FLOAT4_E2M1)


def test_numpy_equivalents_convert_both_ways() -> None:
    names = {
        DataType.FLOAT: np.float32,
        DataType.FLOAT16: np.float16,
        DataType.BF16: ml_dtypes.bfloat16,
        DataType.DOUBLE: np.float64,
        DataType.INT8: np.int8,
        DataType.INT16: np.int16,
        DataType.INT32: np.int32,
        DataType.INT64: np.int64,
        DataType.UINT8: np.uint8,
        DataType.UINT16: np.uint16,
        DataType.UINT32: np.uint32,
        DataType.UINT64: np.uint64,
        DataType.BOOL: np.bool_,
        DataType.COMPLEX64: np.complex64,
        DataType.COMPLEX128: np.complex128,
        DataType.FLOAT8_E5M2: ml_dtypes.float8_e5m2,
        DataType.FLOAT8_E4M3FN: ml_dtypes.float8_e4m3fn,
        DataType.INT4: ml_dtypes.int4,
    }
    for dtype, numpy in names.items():
        assert dtype.numpy == np.dtype(numpy)
        assert dtype.numpy.itemsize == dtype.itemsize
        assert DataType.of_numpy(np.dtype(numpy)) is dtype
    assert DataType.of_numpy(np.dtype("=f4")) is DataType.FLOAT


@pytest.mark.parametrize("name", [">f4", "O", "U3", "M8[s]", "V4", "f4,f4", "g"])
def test_numpy_types_that_acl_lacks_raise(name: str) -> None:
    with pytest.raises(TypeError, match="expected a data type that ACL has"):
        DataType.of_numpy(np.dtype(name))


def test_a_scalar_of_an_unknown_data_type_has_a_status() -> None:
    """An unknown data type of a scalar is an error status, not a TypeError."""
    with pytest.raises(AclnnError, match=r"expected a data type that can be read, got ACL_DT_999") as caught:
        Scalar(DataType(999), b"\0" * 8).rounded(DataType.FLOAT)
    assert caught.value.code == 161002
