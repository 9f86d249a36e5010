"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aclnn.core.dtypes import DataType as D
from aclnn.core.products import Product
from aclnn.operators.library import matrix
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import TRAINED, Break, Breaking, LibraryTests, Subject, torch, wide

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "mm": lambda d: {"mat2": T(d, (3, 4)), "cubeMathType": 1, "out": T(d, (2, 4))},
    "matmul": lambda d: {"self": T(d, (5, 2, 3)), "mat2": T(d, (3, 4)), "cubeMathType": 1, "out": T(d, (5, 2, 4))},
    "batch_mat_mul": lambda d: {
        "self": T(d, (5, 2, 3)),
        "mat2": T(d, (1, 3, 4)),
        "cubeMathType": 4,
        "out": T(d, (5, 2, 4)),
    },
    "addmm": lambda d: {
        "self": T(d, (2, 4)),
        "mat1": T(d, GRID),
        "mat2": T(d, (3, 4)),
        "cubeMathType": 1,
        "out": T(d, (2, 4)),
    },
    "baddbmm": lambda d: {
        "self": T(d, (2, 4)),
        "batch1": T(d, (5, 2, 3)),
        "batch2": T(d, (5, 3, 4)),
        "cubeMathType": 1,
        "out": T(d, (5, 2, 4)),
    },
    "addmv": lambda d: {
        "self": T(d, (1,)),
        "mat": T(d, (2, 3)),
        "vec": T(d, (3,)),
        "cubeMathType": 1,
        "out": T(d, (2,)),
    },
    "addr": lambda d: {"self": T(d, (3,)), "vec1": T(d, (2,)), "vec2": T(d, (3,))},
    "linalg_cross": lambda d: {"dim": -1},
    "mv": lambda d: {"vec": T(d, (3,)), "cubeMathType": 1, "out": T(d, (2,))},
    "ger": lambda d: {"self": T(d, (2,)), "vec2": T(d, (3,))},
    "dot": lambda d: {"self": T(d, (4,)), "tensor": T(d, (4,)), "out": T(d, ())},
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "baddbmm": lambda a: torch.baddbmm(
        *(wide(a[each]) for each in ("self", "batch1", "batch2")), beta=a["beta"], alpha=a["alpha"]
    ),
    "addmv": lambda a: torch.addmv(
        *(wide(a[each]) for each in ("self", "mat", "vec")), beta=a["beta"], alpha=a["alpha"]
    ),
    "addr": lambda a: torch.addr(
        *(wide(a[each]) for each in ("self", "vec1", "vec2")), beta=a["beta"], alpha=a["alpha"]
    ),
    "linalg_cross": lambda a: torch.linalg.cross(wide(a["self"]), wide(a["other"])),
    "mv": lambda a: wide(a["self"]) @ wide(a["vec"]),
    "ger": lambda a: a["self"][:, None] * a["vec2"],
    "dot": lambda a: wide(a["self"]) @ wide(a["tensor"]),
    "mm": lambda a: wide(a["self"]) @ wide(a["mat2"]),
    "matmul": lambda a: wide(a["self"]) @ wide(a["mat2"]),
    "batch_mat_mul": lambda a: torch.matmul(wide(a["self"]), wide(a["mat2"])),
    "addmm": lambda a: torch.addmm(
        *(wide(a[each]) for each in ("self", "mat1", "mat2")), beta=a["beta"], alpha=a["alpha"]
    ),
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "baddbmm": {
        "self": {"shape": (4,)},
        "batch1": {"shape": (0, 2, 3)},
        "batch2": {"shape": (0, 3, 4)},
        "out": {"shape": (0, 2, 4)},
    },
    "addmv": {"vec": {"shape": (3,)}, "self": {"shape": (1,)}, "out": {"shape": (0,)}},
    "addr": {"vec1": {"shape": (0,)}, "vec2": {"shape": (3,)}, "self": {"shape": (3,)}},
    "mv": {"vec": {"shape": (3,)}, "out": {"shape": (0,)}},
    "ger": {"self": {"shape": (0,)}, "vec2": {"shape": (3,)}, "out": {"shape": (0, 3)}},
    "dot": {"self": {"shape": (0,)}, "tensor": {"shape": (0,)}, "out": {"shape": ()}},
    "mm": {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    "matmul": {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    "batch_mat_mul": {"self": {"shape": (0, 2, 3)}, "mat2": {"shape": (0, 3, 4)}, "out": {"shape": (0, 2, 4)}},
    "addmm": {"self": {"shape": (4,)}, "mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
}

BREAKS: Mapping[str, Breaking] = {
    "shape is a row for each of self": lambda o, name: Break(shape((3, 3), name), "a row for each"),
    "as many rows as mat has columns": lambda o, name: Break(shape((5,), name), "3 rows"),
    "broadcasts to out": lambda o, name: Break(shape((4,), name), "broadcasts to [2"),
    "shape is a row for each of vec1": lambda o, name: Break(shape((3, 3), name), "a row for each"),
    "three along dim": lambda o, name: Break({"dim": 0}, "3 elements along dim"),
    "2 dimensions": lambda o, name: Break(shape((1, 3, 4), name), "2 dimensions"),
    "3 dimensions": lambda o, name: Break(shape(GRID, name), "3 dimensions"),
    "keeps the data type": lambda o, name: Break({"cubeMathType": 0} | dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as many rows as self has columns": lambda o, name: Break(
        shape({"batch_mat_mul": (1, 5, 4), "mv": (5,)}.get(o.name, (5, 4)), name), "3 rows"
    ),
    "as many rows as batch1 has columns": lambda o, name: Break(shape((5, 5, 4), name), "3 rows"),
    "as many matrices as batch1": lambda o, name: Break(shape((4, 3, 4), name), "5 matrices"),
    "broadcasts to the products": lambda o, name: Break(shape((3, 4), name), "[5, 2, 4]"),
    "1 dimension": lambda o, name: Break(shape((2, 2), name), "1 dimension"),
    "0 dimensions": lambda o, name: Break(shape((1,), name), "0 dimensions"),
    "as many rows as mat1 has columns": lambda o, name: Break(shape((5, 4), name), "3 rows"),
    "shape of the product": lambda o, name: Break(
        shape((2, 5), name), "shape [2]" if o.name in ("mv", "addmv") else "2, 4]"
    ),
    "1 to 6 dimensions": lambda o, name: Break(shape((1,) * 7 if name == "self" else (), name), "1 to 6"),
    "leading dimensions that broadcast": lambda o, name: Break(shape((3, 3, 4), name), "[5]"),
    "as many matrices as self": lambda o, name: Break(shape((3, 3, 4), name), "5 matrices"),
    "broadcasts to the product": lambda o, name: Break(shape((3, 4), name), "[2, 4]"),
    "exact accumulation": lambda o, name: Break({name: 4}, "less than 4", product=Product.ATLAS_TRAINING),
}


class TestMatrix(LibraryTests):
    subject = Subject(matrix.OPERATORS, calls=CALLS, references=REFERENCES, empty=EMPTY, breaks=BREAKS, default=TRAINED)
