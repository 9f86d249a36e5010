"""Systems of linear equations, factors of matrices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.execution.executor import prepare
from aclnn.operators.library.matrix import solving
from tests.cases.table import Arguments, T, dtype, shape
from tests.helpers.library import (
    BY_NAME,
    COMPLEX,
    TRAINED,
    Break,
    LibraryTests,
    Placed,
    Subject,
    computed,
    precise,
    torch,
)

OPERATOR = BY_NAME["triangular_solve"]


TALL = (2, 4, 3)
SAME_SHAPES = ("inverse", "linalg_cholesky")


def call(d: D) -> Arguments:
    return {
        "self": T(d, (2, 1, 3, 4)),
        "A": T(d, (5, 3, 3)),
        "upper": False,
        "transpose": False,
        "unitriangular": False,
        "xOut": T(d, (2, 5, 3, 4)),
        "mOut": T(d, (2, 5, 3, 3)),
    }


def solution(a: Mapping[str, Any]) -> Any:
    matrices = precise(a["A"])
    triangles = torch.triu(matrices) if a["upper"] else torch.tril(matrices)
    found = torch.linalg.solve_triangular(
        triangles.mT if a["transpose"] else triangles,
        precise(a["self"]),
        upper=a["upper"] != a["transpose"],
        unitriangular=a["unitriangular"],
    )
    return found, matrices.expand(2, *matrices.shape)


def well_conditioned(operator: str, name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if operator == "linalg_cholesky" and name == "self":
        factors = array.astype(np.float32) / 9
        return factors @ factors.swapaxes(-1, -2) + np.eye(array.shape[-1])
    is_square = name == "A" or operator in ("inverse", "slogdet")
    return array / 9 + np.eye(array.shape[-1]) if is_square and array.ndim > 1 else array


class TestSolving(LibraryTests):
    subject = Subject(
        solving.OPERATORS,
        calls={
            OPERATOR.name: call,
            "linalg_cholesky": lambda d: {"self": T(d, (5, 3, 3)), "upper": d == D.FLOAT, "out": T(d, (5, 3, 3))},
            "linalg_qr": lambda d: {"self": T(d, TALL), "mode": 0, "Q": T(d, TALL), "R": T(d, (2, 3, 3))},
            "svd": lambda d: {
                "input": T(d, TALL),
                "fullMatrices": False,
                "computeUV": True,
                "sigma": T(d, (2, 3)),
                "u": T(d, TALL),
                "v": T(d, (2, 3, 3)),
            },
            "inverse": lambda d: {"self": T(d, (5, 3, 3)), "out": T(d, (5, 3, 3))},
            "slogdet": lambda d: {"self": T(d, (5, 3, 3)), "signOut": T(d, (5,)), "logOut": T(d, (5,))},
        },
        dtypes={
            "linalg_cholesky": TRAINED,
            "inverse": (D.FLOAT, D.DOUBLE, *COMPLEX),
            "linalg_qr": (D.FLOAT, D.FLOAT16, D.DOUBLE, *COMPLEX),
        },
        # Vectors have the sign that they get.
        elsewhere=("linalg_qr", "svd"),
        references={
            OPERATOR.name: solution,
            "linalg_cholesky": lambda a: torch.linalg.cholesky(precise(a["self"]), upper=a["upper"]),
            "inverse": lambda a: torch.linalg.inv(precise(a["self"])),
            "slogdet": lambda a: torch.linalg.slogdet(precise(a["self"])),
        },
        default=(D.FLOAT, D.DOUBLE, D.COMPLEX64, D.COMPLEX128),
        empty={
            OPERATOR.name: {
                "self": {"shape": (0, 3)},
                "A": {"shape": (0, 0)},
                "xOut": {"shape": (0, 3)},
                "mOut": {"shape": (0, 0)},
            },
            "linalg_qr": {"self": {"shape": (0, 3)}, "Q": {"shape": (0, 0)}, "R": {"shape": (0, 3)}},
            "svd": {
                "input": {"shape": (0, 3)},
                "sigma": {"shape": (0,)},
                "u": {"shape": (0, 0)},
                "v": {"shape": (3, 0)},
            },
            "linalg_cholesky": shape((0, 3), "self", "out"),
            "inverse": shape((0, 3), "self", "out"),
            "slogdet": {"self": {"shape": (0, 3, 3)}, **shape((0,), "signOut", "logOut")},
        },
        numbers=well_conditioned,
        terms=4,
        breaks={
            "same data type as input": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "shape is by mode": lambda o, name: Break(
                shape((2, 4, 4), name), "[2, 4, 3]" if name == "Q" else "[2, 3, 3]"
            ),
            "shape is of the factor": lambda o, name: Break(shape((7, 7), name), "[2, "),
            "allowed value": lambda o, name: Break({name: 3}, "0, 1 or 2"),
            "same data type as self": lambda o, name: Break(dtype(D.DOUBLE, name), "ACL_FLOAT"),
            "data type": lambda o, name: Break(
                dtype(D.STRING, *([name, "out"] if o.name == "linalg_cholesky" else [name])), "data type"
            ),
            "no private format": lambda o, name: Break(
                {each: {"format": Format.FORMAT_FRACTAL_NZ} for each in (name, "out")}, "ACL_FORMAT_ND"
            ),
            "not too large": lambda o, name: Break(shape((8193, 8193), name, "out"), "at most 8192 rows"),
            "2 to 8 dimensions": lambda o, name: Break(shape((3,), name), "2 to 8 dimensions"),
            "square": lambda o, name: Break(
                shape((5, 3, 2), name, *(["out"] if o.name in SAME_SHAPES else [])), "as many columns"
            ),
            "holds the result": lambda o, name: Break(dtype(D.FLOAT, name), "ACL_COMPLEX64", D.COMPLEX64),
            "at least 2 dimensions": lambda o, name: Break(
                shape((3,), name, *(["out"] if o.name in SAME_SHAPES else [])), "at least 2"
            ),
            "at most 8 dimensions": lambda o, name: Break(shape((1,) * 9, name, "out"), "at most 8"),
            "complex as self": lambda o, name: Break(dtype(D.FLOAT, name), "a complex data type", D.COMPLEX64),
            "shape is one for each matrix": lambda o, name: Break(shape((4,), name), "[5]"),
            "same shape as self": lambda o, name: Break(shape((3, 3), name), "[5, 3, 3]"),
            "… rows (as many as A)": lambda o, name: Break(shape((2, 1, 4, 4), name), "3 rows"),
            "leading dimensions that broadcast": lambda o, name: Break(shape((2, 4, 3, 4), name), "[5]"),
            "shape is self's, broadcast": lambda o, name: Break(shape((2, 5, 4, 3), name), "[2, 5, 3, 4]"),
            "shape is A's, broadcast": lambda o, name: Break(shape((5, 3, 3), name), "[2, 5, 3, 3]"),
            "ones only in float32": lambda o, name: Break({"unitriangular": True}, "ACL_FLOAT", D.DOUBLE),
        },
    )


@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_triangular_solve_reads_its_triangle_only(upper: bool, transpose: bool, unit: bool) -> None:
    arguments = call(D.FLOAT) | {"upper": upper, "transpose": transpose, "unitriangular": unit}
    random = np.random.default_rng(7)
    placed: dict[str, Placed] = {}
    for name, value in arguments.items():
        if isinstance(value, T):
            placed[name] = Placed(random.normal(size=value.shape).astype(np.float32), "contiguous")
    matrices = placed["A"].view
    below = np.tri(3, k=-1, dtype=bool)
    matrices[:, below if upper else below.T] = np.nan
    matrices[:, range(3), range(3)] = np.nan if unit else 2
    prepare(OPERATOR, arguments | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed["mOut"].view, np.broadcast_to(matrices, (2, 5, 3, 3)))
    read = np.triu(matrices) if upper else np.tril(matrices)
    factors = np.where(np.eye(3) > 0, 1.0, read) if unit else read
    factors = factors.swapaxes(-1, -2) if transpose else factors
    right = np.broadcast_to(placed["self"].view, placed["xOut"].view.shape)
    np.testing.assert_allclose(factors @ placed["xOut"].view.astype(np.float64), right, rtol=1e-5, atol=1e-5)


def test_a_singular_matrix_gives_no_finite_solution() -> None:
    placed = {
        name: Placed(np.ones(each, np.float32), "contiguous")
        for name, each in {"self": (2, 1), "A": (2, 2), "xOut": (2, 1), "mOut": (2, 2)}.items()
    }
    placed["A"].view[0, 0] = 0
    flags = dict.fromkeys(("upper", "transpose", "unitriangular"), False)
    prepare(OPERATOR, flags | {name: each.tensor for name, each in placed.items()}, Product.ATLAS_A2).run()
    assert not np.isfinite(placed["xOut"].view).any()


def _adjoint(matrices: Any) -> Any:
    return matrices.conj().swapaxes(-1, -2)


def _run(operator: str, arguments: Mapping[str, Any], x: Any, outs: Mapping[str, tuple[int, ...]]) -> list[Any]:
    """The outputs, of the data type of the matrices, which are the operator's first argument."""
    placed = [Placed(np.full(shape, 7, x.dtype), "reversed with holes") for shape in outs.values()]
    tensors = {name: each.tensor for name, each in zip(outs, placed, strict=True)}
    matrices = Placed(x, "transposed")
    operands = {BY_NAME[operator].parameters[0].name: matrices.tensor, **tensors}
    prepare(BY_NAME[operator], {**operands, **arguments}, Product.ATLAS_A2).run()
    assert all(each.untouched_outside() for each in placed)
    return [each.view for each in placed]


def _matrices(dtype: Any, shape: tuple[int, ...]) -> Any:
    random = np.random.default_rng(7)
    found = random.normal(size=shape)
    return (found + 1j * random.normal(size=shape) if np.dtype(dtype).kind == "c" else found).astype(dtype)


TYPES = (np.float32, np.float64, np.complex64, np.complex128)
WIDE_AND_TALL = ((2, 2, 4, 3), (3, 5), (4, 4), (1, 3))


@pytest.mark.parametrize("shape", WIDE_AND_TALL)
@pytest.mark.parametrize("d", [*TYPES, np.float16])
def test_qr_factors_multiply_to_the_matrix(d: Any, shape: tuple[int, ...]) -> None:
    x, (*batch, rows, columns) = _matrices(d, shape), shape
    least = min(rows, columns)
    tolerance = 4 * np.finfo(d).eps
    for mode, extent in ((0, least), (1, rows)):
        q, r = _run("linalg_qr", {"mode": mode}, x, {"Q": (*batch, rows, extent), "R": (*batch, extent, columns)})
        assert (np.tril(r, -1) == 0).all()
        np.testing.assert_allclose(q @ r, x, atol=4 * tolerance)
        np.testing.assert_allclose(
            _adjoint(q) @ q, np.broadcast_to(np.eye(extent), (*batch, extent, extent)), atol=tolerance
        )
    _, alone = _run("linalg_qr", {"mode": 2}, x, {"Q": (0,), "R": (*batch, least, columns)})
    np.testing.assert_array_equal(alone, r[..., :least, :])


def test_an_orthogonal_factor_without_columns_is_the_identity() -> None:
    q, _ = _run("linalg_qr", {"mode": 1}, np.zeros((2, 3, 0), np.float32), {"Q": (2, 3, 3), "R": (2, 3, 0)})
    np.testing.assert_array_equal(q, np.broadcast_to(np.eye(3), (2, 3, 3)))


@pytest.mark.parametrize("shape", WIDE_AND_TALL)
@pytest.mark.parametrize("d", TYPES)
@pytest.mark.parametrize("full", [False, True])
def test_svd_factors_multiply_to_the_matrix(d: Any, shape: tuple[int, ...], full: bool) -> None:
    x, (*batch, rows, columns) = _matrices(d, shape), shape
    least = min(rows, columns)
    extents = (rows, columns) if full else (least, least)
    outs = {"sigma": (*batch, least), "u": (*batch, rows, extents[0]), "v": (*batch, columns, extents[1])}
    sigma, u, v = _run("svd", {"fullMatrices": full, "computeUV": True}, x, outs)
    tolerance = 8 * np.finfo(d).eps
    np.testing.assert_allclose(sigma, torch.linalg.svdvals(precise(torch.from_numpy(x))).numpy(), atol=4 * tolerance)
    product = (u[..., :least] * sigma[..., None, :]) @ _adjoint(v[..., :least])
    np.testing.assert_allclose(product, x, atol=4 * tolerance)
    for vectors in (u, v):
        extent = vectors.shape[-1]
        unit = np.broadcast_to(np.eye(extent), (*batch, extent, extent))
        np.testing.assert_allclose(_adjoint(vectors) @ vectors, unit, atol=tolerance)
    alone, *vectors = _run("svd", {"fullMatrices": full, "computeUV": False}, x, outs)
    np.testing.assert_allclose(alone, sigma, atol=tolerance)
    assert all((each == 7).all() for each in vectors)


def test_singular_values_alone_need_no_room_for_vectors() -> None:
    """PyTorch passes tensors of no element; aclnnSvd rejected them."""
    outs = {"sigma": (2,), "u": (0,), "v": (0,)}
    sigma, *_ = _run("svd", {"fullMatrices": False, "computeUV": False}, np.diag([1, 2]).astype(np.float32), outs)
    np.testing.assert_allclose(sigma, [2, 1])


def test_inverse_of_a_singular_matrix_is_nan() -> None:
    given = np.array([[[1, 2], [2, 4]], [[2, 0], [0, 4]]], np.float32)
    self, out = Placed(given, "contiguous"), Placed(np.zeros_like(given), "contiguous")
    prepare(BY_NAME["inverse"], {"self": self.tensor, "out": out.tensor}, Product.ATLAS_A2).run()
    assert np.isnan(out.view[0]).all()
    assert out.view[1].tolist() == [[0.5, 0], [0, 0.25]]
    sign, log = (Placed(np.ones(2, np.float32), "contiguous") for _ in range(2))
    call = {"self": self.tensor, "signOut": sign.tensor, "logOut": log.tensor}
    prepare(BY_NAME["slogdet"], call, Product.ATLAS_A2).run()
    assert sign.view.tolist() == [0, 1]
    np.testing.assert_allclose(log.view, [-np.inf, np.log(8)], rtol=1e-6)


@pytest.mark.parametrize("vectors", [True, False])
def test_svd_of_nan_and_infinity_fails(vectors: bool) -> None:
    x = np.array([[np.nan, 1], [1, np.inf]], np.float32)
    results = {"sigma": np.zeros(2, np.float32), "u": x, "v": x}
    with pytest.raises(AclnnError, match=r"^aclnnSvd: input: expected finite numbers"):
        computed("svd", {"input": x, "fullMatrices": True, "computeUV": vectors} | results)


@pytest.mark.parametrize("upper", [False, True])
def test_cholesky_reproduces_the_documents_example(upper: bool) -> None:
    """From the document of aclnnLinalgCholesky."""
    published = np.array([[6, -3, 1], [-3, 2, 0], [1, 0, 4]], np.float32)
    given = {"self": published, "upper": upper, "out": np.full((3, 3), 7, np.float32)}
    found = computed("linalg_cholesky", given)["out"]
    assert (np.tril(found, -1) if upper else np.triu(found, 1)).tolist() == [[0] * 3] * 3
    np.testing.assert_allclose(found.T @ found if upper else found @ found.T, published, atol=1e-6)


def test_a_matrix_that_is_not_positive_definite_leaves_the_others_of_its_batch() -> None:
    given = np.array([np.eye(2), -np.eye(2), np.zeros((2, 2)), 4 * np.eye(2)], np.float32)
    found = computed("linalg_cholesky", {"self": given, "upper": False, "out": np.zeros_like(given)})["out"]
    np.testing.assert_array_equal(found[[0, 3]], [np.eye(2), 2 * np.eye(2)])
    assert np.isnan(found[[1, 2]]).all()
