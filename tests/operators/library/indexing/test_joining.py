"""Cat and stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare
from aclnn.operators.library.indexing import joining
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import BY_NAME, REAL, TRAINED, Break, Breaking, LibraryTests, Placed, Subject, torch, wide

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "sum": lambda d: {"tensors": (T(d, (2, 1)), T(d, (3,)), T(d, ()))},
    **dict.fromkeys(("max_n", "min_n"), lambda d: {"tensors": (T(d, (2, 1)), T(d, (3,)), T(d, GRID))}),
    "chunk_cat": lambda d: {
        "tensors": (T(d, (3, 2)), T(d, (2, 0)), T(d, (2,)), T(d, (5, 1, 2))),
        "dim": 0,
        "numChunks": 2,
        "out": T(d, (2, 4 + 1 + 6)),
    },
    "cat": lambda d: {"tensors": (T(d, (2, 1)), T(d, (0,)), T(d, (2, 2))), "dim": -1, "out": T(d, GRID)},
    "stack": lambda d: {"tensors": (T(d, GRID), T(d, GRID)), "dim": -2, "out": T(d, (2, 2, 3))},
}

DTYPES: Mapping[str, tuple[D, ...]] = {
    "cat": (*REAL, D.BOOL, D.COMPLEX64),
    "sum": (D.FLOAT, D.FLOAT16, D.INT32),
    **dict.fromkeys(("max_n", "min_n"), (*TRAINED, D.INT8, D.INT32, D.INT64)),
    "chunk_cat": TRAINED,
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "sum": lambda a: sum(map(wide, a["tensors"])),
    "max_n": lambda a: torch.stack(torch.broadcast_tensors(*a["tensors"])).amax(0),
    "min_n": lambda a: torch.stack(torch.broadcast_tensors(*a["tensors"])).amin(0),
    "chunk_cat": lambda a: torch._chunk_cat([tensor for tensor in a["tensors"] if tensor.numel()], 0, 2),
    "cat": lambda a: torch.cat(a["tensors"], -1),
    "stack": lambda a: torch.stack(a["tensors"], -2),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    **{name: {"tensors": (T(D.FLOAT, (0, 3)),)} for name in ("sum", "max_n", "min_n")},
    "chunk_cat": {"tensors": (T(D.FLOAT, (0, 3)),), "out": {"shape": (2, 0)}},
    "cat": {"tensors": (T(D.FLOAT, (0,)), T(D.FLOAT, (0,)))},
    "stack": {"tensors": (T(D.FLOAT, (0, 3)),), "out": {"shape": (0, 1, 3)}},
}

BREAKS: Mapping[str, Breaking] = {
    "promotable to one": lambda o, name: Break(
        {name: (T(D.INT32, GRID), T(D.UINT16, GRID))}
        if o.name == "stack"
        else {name: (T(D.DOUBLE, GRID), T(D.COMPLEX64, GRID))},
        "promote to one",
    ),
    "one public format": lambda o, name: Break(
        {"out": {"format": Format.FORMAT_NCHW}}
        if name == "out"
        else {name: (T(D.FLOAT, GRID, Format.FORMAT_FRACTAL_NZ),)},
        "format ACL_FORMAT_ND" if name == "out" else "ACL_FORMAT_ND",
    ),
    "dimension of the tensors": lambda o, name: Break({name: 2}, "one of the 2 dimensions"),
    "same shape but for dim": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (3, 3)))}, "shape [2, 3]"),
    "shape of the tensors together": lambda o, name: Break(
        shape((2, 4), name), "shape [2, 2, 3]" if o.name == "stack" else "shape [2, 3]"
    ),
    "broadcast to one shape": lambda o, name: Break({name: (T(D.FLOAT, (2,)), T(D.FLOAT, (3,)))}, "broadcast to one"),
    "shape is of the tensors together": lambda o, name: Break(shape((2, 2), name), "[2, 3]"),
    "data type … (that of tensors)": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT (that of tensors)"),
    "FLOAT stays": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT (that of tensors)"),
    "no private format among them": lambda o, name: Break(
        {name: (T(D.FLOAT, GRID, Format.FORMAT_FRACTAL_NZ),)}, "ACL_FORMAT_ND"
    ),
    "at least 1": lambda o, name: Break({name: 0}, "at least 1"),
    "allowed value": lambda o, name: Break({name: 1}, "0"),
    "at least 1 dimension each": lambda o, name: Break({name: (T(D.FLOAT, ()),)}, "at least 1 dimension"),
    "shape of the chunks together": lambda o, name: Break(shape((2, 10), name), "shape [2, 11]"),
    "some": lambda o, name: Break({name: ()}, "at least one"),
    "dimension of out": lambda o, name: Break({name: 3}, "from -3 to 2"),
    "same shape": lambda o, name: Break({name: (T(D.FLOAT, GRID), T(D.FLOAT, (3, 3)))}, "shape [2, 3]"),
}


class TestJoining(LibraryTests):
    subject = Subject(joining.OPERATORS, calls=CALLS, references=REFERENCES, dtypes=DTYPES, empty=EMPTY, breaks=BREAKS)


def test_cat_promotes_data_types() -> None:
    parts = [Placed(np.array([1, 2], np.int32), "contiguous"), Placed(np.array([0.5], np.float32), "contiguous")]
    out = Placed(np.zeros(3, np.float32), "contiguous")
    arguments = {"tensors": tuple(part.tensor for part in parts), "dim": 0, "out": out.tensor}
    prepare(BY_NAME["cat"], arguments, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(out.view, [1, 2, 0.5])


@pytest.mark.parametrize("dtype", [D.FLOAT8_E5M2, D.FLOAT8_E4M3FN, D.HIFLOAT8], ids=lambda dtype: dtype.c_name)
@pytest.mark.parametrize("name", ["cat", "stack"])
def test_cat_accepts_8_bit_floats_on_ascend_950(name: str, dtype: D) -> None:
    parts, out = [np.arange(at, at + 3, dtype=np.uint8) * 17 for at in (0, 6)], np.full(6, 9, np.uint8)
    *tensors, result = (
        Tensor(dtype, shape, address=bits.ctypes.data, owner=bits)
        for bits, shape in zip((*parts, out), ((3,), (3,), (6,) if name == "cat" else (2, 3)), strict=True)
    )
    arguments = {"tensors": tuple(tensors), "dim": 0, "out": result}
    prepare(BY_NAME[name], arguments, Product.ASCEND_950).run()
    assert out.tolist() == np.concatenate(parts).tolist()
    with pytest.raises(AclnnError, match=dtype.c_name):
        prepare(BY_NAME[name], arguments, Product.ATLAS_A2)
