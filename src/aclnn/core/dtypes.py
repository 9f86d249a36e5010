"""Data types and storage formats: their ACL numbers and their names in NumPy, ml_dtypes and torch."""

from __future__ import annotations

import math
from ctypes import c_float
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

_FOUR_BITS = (29, 40, 41)


class DataType(IntEnum):
    """``aclDataType``: ACL number, size reported by ``aclDataTypeSize``, names in NumPy or ml_dtypes and in torch.

    Any other number is accepted, as ``aclCreateTensor`` does, and becomes a member without a NumPy equivalent.
    """

    itemsize: int
    bits: int
    """Bits per element in memory; two 4-bit elements share a byte, the first in its low half."""
    numpy_name: str | None
    torch_name: str | None

    def __new__(  # noqa: D102  (the class describes the row)
        cls, number: int, itemsize: int = 8, numpy_name: str | None = None, torch_name: str | None = None
    ) -> DataType:
        member = int.__new__(cls, number)
        member._value_ = number
        member.itemsize = itemsize
        member.bits = 4 if number in _FOUR_BITS else 8 * itemsize
        member.numpy_name = numpy_name
        member.torch_name = torch_name
        return member

    DT_UNDEFINED = -1, 0
    FLOAT = 0, 4, "float32", "float32"
    FLOAT16 = 1, 2, "float16", "float16"
    INT8 = 2, 1, "int8", "int8"
    INT32 = 3, 4, "int32", "int32"
    UINT8 = 4, 1, "uint8", "uint8"
    INT16 = 6, 2, "int16", "int16"
    UINT16 = 7, 2, "uint16", "uint16"
    UINT32 = 8, 4, "uint32", "uint32"
    INT64 = 9, 8, "int64", "int64"
    UINT64 = 10, 8, "uint64", "uint64"
    DOUBLE = 11, 8, "float64", "float64"
    BOOL = 12, 1, "bool", "bool"
    STRING = 13, 0
    COMPLEX64 = 16, 8, "complex64", "complex64"
    COMPLEX128 = 17, 16, "complex128", "complex128"
    BF16 = 27, 2, "bfloat16", "bfloat16"
    INT4 = 29, 1, "int4"
    UINT1 = 30, 1
    COMPLEX32 = 33, 4, None, "complex32"
    HIFLOAT8 = 34, 1
    FLOAT8_E5M2 = 35, 1, "float8_e5m2", "float8_e5m2"
    FLOAT8_E4M3FN = 36, 1, "float8_e4m3fn", "float8_e4m3fn"
    FLOAT8_E8M0 = 37, 1, "float8_e8m0fnu", "float8_e8m0fnu"
    # From here on ``aclDataTypeSize`` returns its default, 8.
    FLOAT6_E3M2 = 38, 8, "float6_e3m2fn"
    FLOAT6_E2M3 = 39, 8, "float6_e2m3fn"
    FLOAT4_E2M1 = 40, 8, "float4_e2m1fn"
    FLOAT4_E1M2 = 41, 8

    @classmethod
    def _missing_(cls, value: object) -> DataType | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"DT_{value}", value
        member.itemsize, member.bits, member.numpy_name, member.torch_name = 8, 64, None, None
        return member

    @property
    def c_name(self) -> str:
        """Name in ``acl_base.h``, such as ``ACL_FLOAT16``."""
        return f"ACL_{self._name_}"

    @property
    def numpy(self) -> np.dtype[Any]:
        """Equivalent NumPy data type (from ml_dtypes for bfloat16 and narrower floats).

        Raises:
            TypeError: neither NumPy nor ml_dtypes has an equivalent.
        """
        return _numpy_dtype(self)

    @property
    def has_numpy(self) -> bool:
        """True if NumPy or ml_dtypes has an equivalent."""
        try:
            return self.numpy is not None
        except TypeError:
            return False

    def decode(self, data: bytes) -> Any:
        """Convert bytes to a NumPy scalar.

        Raises:
            TypeError: neither NumPy nor ml_dtypes has an equivalent.
        """
        return np.frombuffer(data, self.numpy)[0]

    def encode(self, number: Any) -> bytes:
        """Convert a number to the bytes of this data type; overflow of a floating-point type gives infinity.

        Raises:
            OverflowError: an integer exceeds an integer type.
            TypeError: neither NumPy nor ml_dtypes has an equivalent.
        """
        with np.errstate(over="ignore"):
            return np.array(number, self.numpy).tobytes()

    @classmethod
    def of_numpy(cls, dtype: np.dtype[Any]) -> DataType:
        """Return the data type equivalent to a NumPy data type.

        Raises:
            TypeError: there is none (object arrays, strings, non-native byte orders …).
        """
        found = _by_numpy_name().get(dtype.name)
        if found is None or not dtype.isnative:
            cure = "" if found is None else f": .astype({dtype.newbyteorder('=').str!r}) converts it"
            raise TypeError(f"expected a data type that ACL has (float32, float16, bfloat16 …), got {dtype!r}{cure}")
        return found


@cache
def _numpy_dtype(dtype: DataType) -> np.dtype[Any]:
    name = dtype.numpy_name
    if name is not None and (name == "bool" or hasattr(np, name)):
        return np.dtype(name)
    import ml_dtypes

    narrow = None if name is None else getattr(ml_dtypes, name, None)  # 4- and 6-bit types need ml_dtypes 0.5
    if narrow is None:
        raise TypeError(f"{dtype.c_name} has no NumPy equivalent")
    equivalent: np.dtype[Any] = np.dtype(narrow)
    return equivalent


@cache
def _by_numpy_name() -> dict[str, DataType]:
    return {dtype.numpy_name: dtype for dtype in DataType if dtype.numpy_name is not None}


class Format(IntEnum):
    """``aclFormat``: a label that checks read; no operator reorders data because of it."""

    private: bool

    def __new__(cls, number: int, private: bool = False) -> Format:  # noqa: D102  (the class describes the row)
        member = int.__new__(cls, number)
        member._value_ = number
        member.private = private
        return member

    FORMAT_UNDEFINED = -1
    FORMAT_NCHW = 0
    FORMAT_NHWC = 1
    FORMAT_ND = 2
    FORMAT_NC1HWC0 = 3, True
    FORMAT_FRACTAL_Z = 4, True
    FORMAT_NC1HWC0_C04 = 12, True
    FORMAT_HWCN = 16
    FORMAT_NDHWC = 27
    FORMAT_FRACTAL_NZ = 29, True
    FORMAT_NCDHW = 30
    FORMAT_NDC1HWC0 = 32, True
    FRACTAL_Z_3D = 33, True
    FORMAT_NC = 35
    FORMAT_NCL = 47
    FORMAT_FRACTAL_NZ_C0_16 = 50, True
    FORMAT_FRACTAL_NZ_C0_32 = 51, True
    FORMAT_FRACTAL_NZ_C0_2 = 52, True
    FORMAT_FRACTAL_NZ_C0_4 = 53, True
    FORMAT_FRACTAL_NZ_C0_8 = 54, True

    @classmethod
    def _missing_(cls, value: object) -> Format | None:
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = f"FORMAT_{value}", value
        member.private = False
        return member

    @property
    def c_name(self) -> str:
        """Name in ``acl_base.h``, such as ``ACL_FORMAT_ND``."""
        return f"ACL_{self._name_}"

    @classmethod
    def of_rank(cls, rank: int) -> Format:
        """Return the format that torch_npu gives tensors of this rank; functions may reject others."""
        return {3: cls.FORMAT_NCL, 4: cls.FORMAT_NCHW, 5: cls.FORMAT_NCDHW}.get(rank, cls.FORMAT_ND)


def is_float32(number: float) -> bool:
    """Return True if a number is a float32, an infinity, or NaN."""
    return math.isnan(number) or float32(number) == number


def float32(number: float) -> float:
    """Round an attribute to float32, the precision in which the vendor's code receives it."""
    return c_float(number).value
