"""Products of matrices and vectors."""

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
from aclnn.operators.library.matrix import matrix
from tests.cases.table import GRID, Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    REAL,
    TRAINED,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    precise,
    scalar,
    torch,
    wide,
)

NZ = Format.FORMAT_FRACTAL_NZ
#: What wraps where it exceeds its type.
INTEGRAL = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def vector_sum(self: Any, mat: Any, vec: Any, beta: Any, alpha: Any) -> Any:
    """torch.addmv, which takes no booleans."""
    if self.dtype == torch.bool:
        return (self & beta) | ((mat & vec).any(1) & alpha)
    return torch.addmv(self, mat, vec, beta=beta, alpha=alpha)


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
    "matmul_weight_nz": lambda d: CALLS["mm"](d) | {"mat2": T(d, (3, 4), NZ)},
    "batch_mat_mul_weight_nz": lambda d: CALLS["batch_mat_mul"](d) | {"mat2": T(d, (1, 3, 4), NZ)},
    "addmm_weight_nz": lambda d: CALLS["addmm"](d) | {"self": T(d, (4,)), "mat2": T(d, (3, 4), NZ)},
    "gemm": lambda d: {
        "A": T(d, (3, 2)),
        "B": T(d, (4, 3)),
        "C": T(d, (2, 1)),
        "alpha": 0.5,
        "beta": -2.0,
        "transA": 1,
        "transB": -1,
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
    "inplace_addmm": lambda d: {
        "selfRef": T(d, (2, 4)),
        "mat1": T(d, GRID),
        "mat2": T(d, (3, 4)),
        "cubeMathType": 1,
    },
    "inplace_baddbmm": lambda d: {
        "selfRef": T(d, (5, 2, 4)),
        "batch1": T(d, (5, 2, 3)),
        "batch2": T(d, (5, 3, 4)),
        "cubeMathType": 1,
    },
    "addbmm": lambda d: {
        "self": T(d, (2, 1)),
        "batch1": T(d, (5, 2, 3)),
        "batch2": T(d, (1, 3, 4)),
        "cubeMathType": 1,
        "out": T(d, (2, 4)),
    },
    "inplace_addbmm": lambda d: {
        "selfRef": T(d, (2, 4)),
        "batch1": T(d, (5, 2, 3)),
        "batch2": T(d, (5, 3, 4)),
        "cubeMathType": 1,
    },
    "addmv": lambda d: {
        "self": T(d, (1,)),
        "mat": T(d, (2, 3)),
        "vec": T(d, (3,)),
        "cubeMathType": 1,
        "out": T(d, (2,)),
    },
    "addr": lambda d: {
        "self": T(d, (3,)),
        "vec1": T(d, (2,)),
        "vec2": T(d, (3,)),
        # PyTorch takes 1 in its place.
        **({"betaOptional": None} if d == D.INT16 else {}),
    },
    "inplace_addr": lambda d: {"vec1": T(d, (2,)), "vec2": T(d, (3,))},
    "linalg_cross": lambda d: {"self": T(d, (3,)), "other": T(d, (2, 1)), "dim": 0},
    "mv": lambda d: {"vec": T(d, (3,)), "cubeMathType": 1, "out": T(d, (2,))},
    "ger": lambda d: {"self": T(d, (2,)), "vec2": T(d, (3,))},
    "dot": lambda d: {"self": T(d, (4,)), "tensor": T(d, (4,)), "out": T(d, ())},
}

REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    **{
        f"{where}{name}": lambda a, name=name, factors=factors: getattr(torch, name)(
            wide(first(a)), *(wide(a[each]) for each in factors), beta=a["beta"], alpha=a["alpha"]
        )
        for name, factors in (("addmm", ("mat1", "mat2")), ("baddbmm", ("batch1", "batch2")))
        for where in ("", "inplace_")
    },
    "addmm_weight_nz": lambda a: REFERENCES["addmm"](a),
    "gemm": lambda a: torch.addmm(*(wide(x) for x in (a["C"], a["A"].T, a["B"].T)), beta=a["beta"], alpha=a["alpha"]),
    **{
        f"{where}addbmm": lambda a: (
            a["beta"] * wide(first(a)) + a["alpha"] * (wide(a["batch1"]) @ wide(a["batch2"])).sum(0)
        )
        for where in ("", "inplace_")
    },
    "addmv": lambda a: vector_sum(
        *(x if x.dtype in INTEGRAL else wide(x) for x in (a["self"], a["mat"], a["vec"])), a["beta"], a["alpha"]
    ),
    **{
        f"{where}addr": lambda a: torch.addr(
            *(x if x.dtype in INTEGRAL else wide(x) for x in (first(a), a["vec1"], a["vec2"])),
            beta=1 if a["betaOptional"] is None else a["betaOptional"],
            alpha=a["alphaOptional"],
        )
        for where in ("", "inplace_")
    },
    "linalg_cross": lambda a: torch.linalg.cross(
        *torch.broadcast_tensors(*(x if x.dtype in INTEGRAL else precise(x) for x in (a["self"], a["other"]))),
        dim=-1,
    ),
    "mv": lambda a: wide(a["self"]) @ wide(a["vec"]),
    "ger": lambda a: a["self"][:, None] * a["vec2"],
    "dot": lambda a: wide(a["self"]) @ wide(a["tensor"]),
    **{
        name: lambda a: wide(a["self"]) @ wide(a["mat2"])
        for name in ("mm", "matmul", "batch_mat_mul", "matmul_weight_nz", "batch_mat_mul_weight_nz")
    },
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "baddbmm": {
        "self": {"shape": (0, 1, 4)},
        "batch1": {"shape": (0, 2, 3)},
        "batch2": {"shape": (0, 3, 4)},
        "out": {"shape": (0, 2, 4)},
    },
    "inplace_baddbmm": {
        "selfRef": {"shape": (0, 2, 4)},
        "batch1": {"shape": (0, 2, 3)},
        "batch2": {"shape": (0, 3, 4)},
    },
    "addbmm": {
        "self": {"shape": (0, 1)},
        "batch1": {"shape": (5, 0, 3)},
        "batch2": {"shape": (5, 3, 4)},
        "out": {"shape": (0, 4)},
    },
    "inplace_addbmm": {
        "selfRef": {"shape": (0, 4)},
        "batch1": {"shape": (5, 0, 3)},
        "batch2": {"shape": (5, 3, 4)},
    },
    "inplace_addmm": {"selfRef": {"shape": (0, 4)}, "mat2": {"shape": (3, 4)}},
    "linalg_cross": {"dim": -1},
    "addmv": {"vec": {"shape": (3,)}, "self": {"shape": (1,)}, "out": {"shape": (0,)}},
    "addr": {"vec1": {"shape": (0,)}, "vec2": {"shape": (3,)}, "self": {"shape": (3,)}},
    "inplace_addr": {"vec1": {"shape": (0,)}, "vec2": {"shape": (3,)}},
    "mv": {"vec": {"shape": (3,)}, "out": {"shape": (0,)}},
    "ger": {"self": {"shape": (0,)}, "vec2": {"shape": (3,)}, "out": {"shape": (0, 3)}},
    "dot": {"self": {"shape": (0,)}, "tensor": {"shape": (0,)}, "out": {"shape": ()}},
    "mm": {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}},
    **{name: {"mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}} for name in ("matmul", "matmul_weight_nz")},
    **{
        name: {"self": {"shape": (0, 2, 3)}, "mat2": {"shape": (0, 3, 4)}, "out": {"shape": (0, 2, 4)}}
        for name in ("batch_mat_mul", "batch_mat_mul_weight_nz")
    },
    **{
        name: {"self": {"shape": (4,)}, "mat2": {"shape": (3, 4)}, "out": {"shape": (0, 4)}}
        for name in ("addmm", "addmm_weight_nz")
    },
    "gemm": {"A": {"shape": (3, 0)}, "B": {"shape": (4, 3)}, "C": {"shape": (1, 4)}, "out": {"shape": (0, 4)}},
}

BREAKS: Mapping[str, Breaking] = {
    "shape is a row for each of self": lambda o, name: Break(shape((3, 3), name), "a row for each"),
    "as many rows as mat has columns": lambda o, name: Break(shape((5,), name), "3 rows"),
    "broadcasts to out": lambda o, name: Break(shape((4,), name), "broadcasts to [2"),
    "shape is a row for each of vec1": lambda o, name: Break(shape((3, 3), name), "a row for each"),
    "three along dim": lambda o, name: Break(shape((2,), "self") | shape((2, 2), "out"), "3 elements along dim 0"),
    "broadcasts with self": lambda o, name: Break(shape((4, 2), name), "broadcasts with"),
    "broadcast shape of self and other": lambda o, name: Break(shape((3, 3), name), "shape [2, 3]"),
    "dimension of self": lambda o, name: Break({name: 1}, "from -1 to 0"),
    "fits the result": lambda o, name: Break({name: scalar(D.BOOL, True)}, "a number"),
    "0 to 2 dimensions": lambda o, name: Break(shape((1, 2, 3), name), "0 to 2 dimensions"),
    "broadcasts to the products": lambda o, name: Break(shape((4,), name), "[2, 3]"),
    "0 to 1 dimensions": lambda o, name: Break(shape((1, 2), name), "0 to 1 dimensions"),
    "2 dimensions": lambda o, name: Break(shape((1, 3, 4), name), "2 dimensions"),
    "3 dimensions": lambda o, name: Break(shape(GRID, name), "3 dimensions"),
    "keeps the data type": lambda o, name: Break({"cubeMathType": 0} | dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as many rows as self has columns": lambda o, name: Break(
        shape((1, 5, 4) if o.name.startswith("batch") else (5,) if o.name == "mv" else (5, 4), name), "3 rows"
    ),
    "as many rows as batch1 has columns": lambda o, name: Break(shape((5, 5, 4), name), "3 rows"),
    "as many matrices as batch1": lambda o, name: Break(shape((4, 3, 4), name), "5 matrices"),
    "1 dimension": lambda o, name: Break(shape((2, 2), name), "1 dimension"),
    "0 dimensions": lambda o, name: Break(shape((1,), name), "0 dimensions"),
    "as many rows as A has columns": lambda o, name: Break(shape((4, 5), name), "3 rows"),
    "1 to 2 dimensions": lambda o, name: Break(shape((), name), "1 to 2 dimensions"),
    "format ACL_FORMAT_ND": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
    "same data type as self": lambda o, name: Break(
        dtype(D.BF16, name), "ACL_FLOAT", D.FLOAT16 if o.name.endswith("_nz") else None
    ),
    "same data type as mat1": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16"),
    "data type of self or float32": lambda o, name: Break(dtype(D.BF16, name), "ACL_FLOAT16 or ACL_FLOAT", D.FLOAT16),
    "as many rows as mat1 has columns": lambda o, name: Break(shape((5, 4), name), "3 rows"),
    "shape of the product": lambda o, name: Break(
        shape((2, 5), name), "shape [2]" if o.name in ("mv", "addmv") else "2, 4]"
    ),
    "number of dimensions": lambda o, name: Break(shape((1,) * 9 if name == "self" else (), name), "1 to 8"),
    "as many elements as the product": lambda o, name: Break(shape((5, 2, 5), name), "40 elements"),
    "no dimension of 1 in blocks": lambda o, name: Break(
        {name: {"shape": (1, 3, 1) if o.name.startswith("batch") else (3, 1), "format": NZ}}
        | (shape((1,), "self") | shape((2, 1), "out") if o.name == "addmm_weight_nz" else {}),
        "no dimension of 1",
    ),
    "empty with the product": lambda o, name: Break(
        {**shape((5, 0, 3), "batch1"), **shape((1, 4), "self")}
        | shape((5, 0, 4) if o.name == "baddbmm" else (0, 4), "out"),
        "an empty product",
    ),
    "same format as batch1": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
    "same format as batch2": lambda o, name: Break({name: {"format": Format.FORMAT_NCHW}}, "ACL_FORMAT_ND"),
    "holds the result": lambda o, name: Break(
        dtype(D.INT32, name), "ACL_DOUBLE" if o.name == "addmv" else "ACL_FLOAT", D.FLOAT
    ),
    "same data type as vec": lambda o, name: Break(dtype(D.FLOAT16, name), "ACL_FLOAT"),
    "as long as out without a product": lambda o, name: Break({"alpha": scalar(D.FLOAT, 0)}, "an alpha of 0"),
    "leading dimensions that broadcast": lambda o, name: Break(shape((3, 3, 4), name), "[5]"),
    "as many matrices as self": lambda o, name: Break(shape((3, 3, 4), name), "5 matrices"),
    "broadcasts to the product": lambda o, name: Break(shape((3, 4), name), "2, 4]"),
    "exact accumulation": lambda o, name: Break({name: 4}, "less than 4", product=Product.ATLAS_TRAINING),
}


class TestMatrix(LibraryTests):
    subject = Subject(
        matrix.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes={
            "linalg_cross": (*REAL, *COMPLEX),
            "ger": (D.FLOAT, D.FLOAT16, D.DOUBLE, D.INT32, D.COMPLEX64),
            "dot": (*TRAINED, D.INT32),
            **dict.fromkeys(("addr", "inplace_addr", "addmv"), (*REAL, D.BOOL)),
            **dict.fromkeys(("batch_mat_mul_weight_nz", "addmm_weight_nz"), (D.FLOAT16, D.BF16)),
        },
        empty=EMPTY,
        breaks=BREAKS,
        default=TRAINED,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("beta", [0, 2])
def test_a_beta_or_alpha_of_0_ignores_nan(beta: int, dtype: type[np.floating[Any]]) -> None:
    """PyTorch and CANN do not look at it; NaN was the result of aclnnAddr, and of matrices with an alpha of 0."""

    def tensor(*shape: int) -> Placed:
        return Placed(np.full(shape, np.nan, dtype), "contiguous")

    numbers = [scalar(D.DOUBLE, beta), scalar(D.DOUBLE, 0)]
    for operator, factors in (
        ("addmm", {"mat1": (1, 1), "mat2": (1, 1)}),
        ("addbmm", {"batch1": (3, 1, 1), "batch2": (3, 1, 1)}),
        ("addr", {"vec1": (1,), "vec2": (1,)}),
    ):
        placed = {
            "self": tensor(1, 1),
            "out": tensor(1, 1),
            **{name: tensor(*shape) for name, shape in factors.items()},
        }
        if beta:
            placed["self"].view[...] = 1.5
        for name in factors if operator == "addr" else ():
            placed[name].view[...] = 1
        call: dict[str, Any] = {name: each.tensor for name, each in placed.items()}
        if operator == "addr":
            call |= zip(("betaOptional", "alphaOptional"), numbers, strict=True)
        else:
            call |= {"beta": numbers[0], "alpha": numbers[1], "cubeMathType": 1}
        prepare(BY_NAME[operator], call, Product.ATLAS_A2).run()
        assert placed["out"].view == 1.5 * beta, operator


def test_a_single_number_is_added_to_a_product() -> None:
    placed = {
        name: Placed(np.full(shape, 2, np.float32), "contiguous")
        for name, shape in {"self": (), "mat1": (2, 2), "mat2": (2, 3), "out": (2, 3)}.items()
    }
    numbers = {"beta": scalar(D.DOUBLE, 0.5), "alpha": scalar(D.DOUBLE, 1), "cubeMathType": 1}
    prepare(BY_NAME["addmm"], numbers | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    assert (placed["out"].view == 9).all()


def test_integers_have_no_fractional_factors() -> None:
    call = {"self": Tensor(D.INT32, ()), "vec1": Tensor(D.INT32, (2,)), "vec2": Tensor(D.BOOL, (2,))}
    factors = {"betaOptional": scalar(D.INT64, 2), "alphaOptional": scalar(D.FLOAT, 2)}
    with pytest.raises(AclnnError, match="alphaOptional: expected an integer"):
        prepare(BY_NAME["addr"], call | {"out": Tensor(D.INT32, (2, 2))} | factors, Product.ATLAS_A2)


def test_a_factor_beyond_the_matrix_type_wraps() -> None:
    """It raised an internal error."""
    x, v = np.ones((2, 2), np.int8), np.array([1, 2], np.int8)
    call = {"self": x, "vec1": v, "vec2": v, "out": x * 0}
    call |= {"betaOptional": scalar(D.INT64, 257), "alphaOptional": scalar(D.INT64, 300)}
    assert computed("addr", call)["out"].tolist() == [[45, 89], [89, -79]]


@pytest.mark.parametrize(
    ("dtypes", "rejected"), [((D.INT8,) * 3, ""), ((D.FLOAT, D.FLOAT16, D.FLOAT), "tensor"), ((D.INT64,) * 3, "self")]
)
def test_vectors_of_one_type_are_multiplied(dtypes: tuple[D, D, D], rejected: str) -> None:
    call = dict(zip(("self", "tensor", "out"), map(Tensor, dtypes, ((3,), (3,), ())), strict=True))
    if rejected:
        with pytest.raises(AclnnError, match=f"{rejected}: expected data type"):
            prepare(BY_NAME["dot"], call, Product.ATLAS_A2)
    else:
        assert prepare(BY_NAME["dot"], call, Product.ATLAS_A2).prepared.plan


@pytest.mark.parametrize(
    ("left", "right", "out"), [((3,), (3,), (1,)), ((2, 3), (3, 4), (8,)), ((3,), (2, 3, 1), (2, 1, 1))]
)
@pytest.mark.parametrize("cast", [np.float32, np.float16])
def test_a_product_takes_the_shape_of_its_output(left: Any, right: Any, out: Any, cast: Any) -> None:
    """CANN's host test multiplies two vectors into [1], which was rejected."""
    self, mat2 = (np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(cast) for shape in (left, right))
    call = {"self": self, "mat2": mat2, "out": np.zeros(out, cast), "cubeMathType": 1}
    assert (computed("matmul", call)["out"] == (self @ mat2).reshape(out)).all()


@pytest.mark.parametrize(("product", "taken"), [(Product.ATLAS_A2, True), (Product.ASCEND_950, False)])
def test_matmul_accepts_eight_dimensions(product: Product, taken: bool) -> None:
    """They were rejected everywhere, as CANN's newest source does only before and after Atlas A2 and A3."""
    shapes = {"self": (2, 1, 1, 1, 1, 1, 5, 6), "mat2": (6, 5), "out": (2, 1, 1, 1, 1, 1, 5, 5)}
    call = {name: Tensor(D.FLOAT, shape) for name, shape in shapes.items()} | {"cubeMathType": 1}
    if taken:
        assert prepare(BY_NAME["matmul"], call, product).prepared.plan
    else:
        with pytest.raises(AclnnError, match="1 to 6 dimensions on Ascend 950"):
            prepare(BY_NAME["matmul"], call, product)


@pytest.mark.parametrize(
    ("operator", "shapes", "text"),
    [
        ("addmm", {"self": (2, 0), "mat1": (2, 0), "mat2": (0, 0), "out": (0, 0)}, ""),
        ("addmm", {"self": (2, 2), "mat1": (2, 2), "mat2": (2, 2), "out": (2, 2)}, "self: expected a format"),
        ("baddbmm", {"self": (2, 3, 5), "batch1": (1, 3, 4), "batch2": (2, 4, 5), "out": (2, 3, 5)}, "batch2: "),
        ("addbmm", {"self": (), "batch1": (1, 3, 4), "batch2": (2, 4, 5), "out": (3, 5)}, ""),
    ],
)
def test_sums_of_products_take_shapes_and_formats_as_in_cann(operator: str, shapes: Any, text: str) -> None:
    """CANN's host code rejects an addend in blocks and copies of the first batch, and looks at no empty result."""
    call: dict[str, Any] = {name: Tensor(D.FLOAT, shape) for name, shape in shapes.items()}
    if text and operator == "addmm":
        call["self"] = Tensor(D.FLOAT, shapes["self"], format=NZ)
    call |= {"beta": scalar(D.FLOAT, 1), "alpha": scalar(D.FLOAT, 1), "cubeMathType": 1}
    if text:
        with pytest.raises(AclnnError, match=text):
            prepare(BY_NAME[operator], call, Product.ATLAS_A2)
    else:
        prepare(BY_NAME[operator], call, Product.ATLAS_A2)


@pytest.mark.parametrize(
    ("alpha", "dtype", "expected"), [(1, np.bool_, [True, False]), (3, np.int64, [4, 0]), (0.5, np.float32, [1.5, 0])]
)
def test_booleans_and_integers_are_multiplied_with_a_vector(alpha: Any, dtype: Any, expected: Any) -> None:
    """Documented but rejected types; booleans are not counted, and a factor determines the type."""
    mat, vec = np.array([[1, 1], [0, 0]], bool), np.array([1, 1], bool)
    call: dict[str, Any] = {"self": np.array([1, 0], bool), "mat": mat, "vec": vec, "out": np.zeros(2, dtype)}
    kind = {np.bool_: D.BOOL, np.int64: D.INT64, np.float32: D.FLOAT}[dtype]
    call |= {"alpha": scalar(kind, alpha), "beta": scalar(D.BOOL, True), "cubeMathType": 1}
    assert computed("addmv", call)["out"].tolist() == expected


H, B, F = D.FLOAT16, D.BF16, D.FLOAT


@pytest.mark.parametrize(
    ("operator", "product", "dtypes", "text"),
    [
        ("matmul_weight_nz", Product.ATLAS_A2, (H, H, F), ""),
        ("matmul_weight_nz", Product.ATLAS_A2, (F, H, H), ""),
        ("matmul_weight_nz", Product.ATLAS_A2, (H, B, F), "mat2: "),
        ("matmul_weight_nz", Product.ATLAS_A2, (B, B, H), "out: "),
        ("matmul_weight_nz", Product.ASCEND_950, (B, B, F), ""),
        ("matmul_weight_nz", Product.ASCEND_950, (F, F, F), "self: "),
        ("matmul_weight_nz", Product.ATLAS_INFERENCE, (H, H, H), ""),
        ("batch_mat_mul_weight_nz", Product.ASCEND_950, (H, H, F), ""),
        ("batch_mat_mul_weight_nz", Product.ATLAS_A2, (H, H, F), "out: "),
        ("batch_mat_mul_weight_nz", Product.ATLAS_A2, (F, F, F), "self: "),
    ],
)
@pytest.mark.parametrize("label", [NZ, Format.FORMAT_ND, Format.FORMAT_NCL])
def test_matmul_weight_nz_accepts_canns_data_types_and_labels(
    operator: str, product: Product, dtypes: Any, text: str, label: Any
) -> None:
    """As in CANN's host tests; a weight converted by aclnnTransMatmulWeight keeps its label here."""
    call = dict(CALLS[operator](H))
    call |= {"self": call.get("self", T(H, GRID)), "mat2": call["mat2"]._replace(format=label)}
    tensors = {
        name: Tensor(dtype, call[name].shape, format=call[name].format)
        for name, dtype in zip(("self", "mat2", "out"), dtypes, strict=True)
    }
    if text:
        with pytest.raises(AclnnError, match=f": {text}expected data type"):
            prepare(BY_NAME[operator], call | tensors | {"cubeMathType": 1}, product)
    else:
        assert prepare(BY_NAME[operator], call | tensors | {"cubeMathType": 1}, product).prepared.plan


def test_gemm_reproduces_the_documents_example() -> None:
    a, c = np.array([[1, 2], [1, 2]], np.float32), np.ones((2, 2), np.float32)
    call = {"A": a, "B": a, "C": c, "alpha": 1.0, "beta": 2.0, "transA": 0, "transB": 0, "out": c * 0}
    assert computed("gemm", call | {"cubeMathType": 1})["out"].tolist() == [[5, 8], [5, 8]]
