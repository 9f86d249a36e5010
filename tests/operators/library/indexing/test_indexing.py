"""Selecting, replacing, adding, sorting by indices."""

from __future__ import annotations

import itertools
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
from aclnn.operators.library.common import REAL
from aclnn.operators.library.indexing import indexing
from tests.cases.table import NO_KERNEL, Arguments, T, scalar, shape
from tests.helpers.library import (
    BY_NAME,
    IMAGES,
    Array,
    Break,
    Breaking,
    LibraryTests,
    Placed,
    Subject,
    computed,
    first,
    precise,
    torch,
)


def _precise_number(values: Any) -> Any:
    return precise(values) if values.is_floating_point() or values.is_complex() else values


def _scattered(values: Any, index: Any, source: Any, adds: bool) -> Any:
    """Reductions with indices that occur once."""
    if not adds:
        return values.scatter(-1, index, source)
    more = torch.zeros_like(values).scatter(-1, index, source)
    return values | more if values.dtype == torch.bool else values + more


def _added(a: Mapping[str, Any]) -> Any:
    if a["self"].dtype == torch.bool:
        return a["self"] | torch.zeros_like(a["self"]).index_put((a["index"].long(),), a["source"], True)
    return _precise_number(a["self"]).index_add(0, a["index"], _precise_number(a["source"]), alpha=a["alpha"])


FAST = (D.FLOAT, D.FLOAT16, D.BF16, D.INT32, D.INT16)
BY_TENSOR = ("index_fill", "inplace_index_fill")
FILLED = tuple(f"{where}index_{name}" for name in ("fill_tensor", "copy") for where in ("", "inplace_"))
REDUCED = ("scatter_reduce", "inplace_scatter_reduce")

CALLS: Mapping[str, Callable[[D], Arguments]] = {
    "index": lambda d: {
        "self": T(d, IMAGES),
        "indices": (None, T(D.INT64, (3, 1)), T(D.INT32, (2,))),
        "out": T(d, (2, 3, 2, 4)),
    },
    "index_put_impl": lambda d: {
        "indices": (T(D.INT64, (4,)),),
        "values": T(d, (4, 3)),
        "accumulate": d not in (D.FLOAT16, D.BF16),
        "unsafe": False,
    },
    "index_select": lambda d: {"dim": -1, "index": T(D.INT64, (4,)), "out": T(d, (2, 4))},
    "gather_v2": lambda d: {"dim": -2, "index": T(D.INT32, (4, 1)), "out": T(d, (4, 1, 3))},
    "gather_v3": lambda d: CALLS["gather_v2"](d) | {"dim": 0, "batchDims": 0, "mode": 1},
    "gather": lambda d: {"dim": 1, "index": T(D.INT64, (2, 5)), "out": T(d, (2, 5))},
    **{
        name: lambda d: {"dim": -1, "index": T(D.INT64, (1, 3)), "reduce": int(d in (D.FLOAT, D.INT32))}
        for name in ("scatter", "inplace_scatter", "scatter_value", "inplace_scatter_value", "scatter_add")
    },
    **{name: lambda d: {"dim": -1, "index": T(D.INT32, (1, 3)), "reduce": 1, "includeSelf": True} for name in REDUCED},
    "index_add": lambda d: {"dim": 0, "index": T(D.INT32, (3,)), "source": T(d, (3, 3))},
    "index_add_v2": lambda d: CALLS["index_add"](d) | {"dim": -2, "mode": int(d not in FAST)},
    **{name: lambda d: {"dim": -1, "index": (2, -3)} for name in FILLED[:2]},
    **{name: lambda d: {"dim": -1, "index": T(D.INT32, (2, 1))} for name in BY_TENSOR},
    **{name: lambda d: {"dim": 0, "index": T(D.INT32, (1,)), "source": T(d, (1, 3))} for name in FILLED[2:]},
    "nonzero": lambda d: {"out": T(D.INT64, (6, 2))},
    "nonzero_v2": lambda d: {"out": T(D.INT64, (2, 6))},
}


DTYPES: Mapping[str, tuple[D, ...]] = {
    **dict.fromkeys((*FILLED, *BY_TENSOR), (D.FLOAT, D.BF16, D.INT64)),
    **dict.fromkeys(("index_add_v2", "index", "index_put_impl", "gather"), REAL),
}


REFERENCES: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "index": lambda a: a["self"][:, a["indices"][1], a["indices"][2].long()],
    "index_put_impl": lambda a: a["selfRef"].index_put((a["indices"][0],), a["values"], a["accumulate"]),
    "index_select": lambda a: a["self"].index_select(-1, a["index"]),
    **{name: lambda a: a["self"][a["index"].long()] for name in ("gather_v2", "gather_v3")},
    "gather": lambda a: a["self"].gather(1, a["index"]),
    **{
        name: lambda a: _scattered(first(a), a["index"], a["src"] if "src" in a else a["value"], a["reduce"])
        for name in ("scatter", "inplace_scatter", "scatter_value", "inplace_scatter_value")
    },
    **{
        name: lambda a: _scattered(first(a), a["index"].long(), a["src"], adds=True)
        for name in ("scatter_add", *REDUCED)
    },
    **dict.fromkeys(("index_add", "index_add_v2"), lambda a: _added(a)),
    **{name: lambda a: first(a).index_fill(-1, torch.tensor([2, 0]), a["value"]) for name in FILLED[:2]},
    **{name: lambda a: first(a).index_fill(-1, a["index"].flatten().long(), a["value"]) for name in BY_TENSOR},
    **{name: lambda a: a["selfRef"].index_copy(0, a["index"].long(), a["source"]) for name in FILLED[2:]},
    "nonzero": lambda a: a["self"].nonzero(),
    "nonzero_v2": lambda a: a["self"].nonzero().T,
}

EMPTY: Mapping[str, Mapping[str, Any]] = {
    "index": {"self": {"shape": (0, *IMAGES[1:])}, "out": {"shape": (0, 3, 2, 4)}},
    "index_select": {"index": {"shape": (4,)}, "out": {"shape": (0, 4)}},
    **{name: {"index": {"shape": (0, 2)}, "out": {"shape": (0, 2, 3)}} for name in ("gather_v2", "gather_v3")},
    **{name: {"index": {"shape": (0,)}} for name in ("index_add", "index_add_v2", *FILLED[2:])},
    **{name: {"index": ()} for name in FILLED[:2]},
    "nonzero": {"out": {"shape": (0, 2)}},
    "nonzero_v2": {"out": {"shape": (2, 0)}},
}

INDICES: Mapping[tuple[str, str], int] = {
    ("index", "indices"): 4,
    ("index_put_impl", "indices"): 2,
    **{(name, "index"): 2 for name in ("index_add", "index_add_v2", *FILLED[2:], *BY_TENSOR)},
    **{(name, "index"): 3 for name in ("index_select", "gather")},
    **{(name, "index"): 2 for name in ("gather_v2", "gather_v3")},
}

BREAKS: Mapping[str, Breaking] = {
    "tensors of indices": lambda o, name: Break({name: (T(D.FLOAT, (2,)),)}, "ACL_INT32"),
    "shapes that broadcast": lambda o, name: Break(
        {name: (T(D.INT64, (2,)), T(D.INT64, (3,)))}, "shapes that broadcast"
    ),
    "broadcasts to the selection": lambda o, name: Break(shape((5,), name), "broadcasts to ["),
    "shape of the selection": lambda o, name: Break(shape((2, 3, 2, 5), name), "shape [2, 3, 2, 4]"),
    "one dimension": lambda o, name: Break(shape((2, 2), name), "at most 1"),
    "shape is a row for each index": lambda o, name: Break(shape((2, 2), name), "a row for each"),
    **{
        f"within {first}": lambda o, name: (
            Break({name: (0, 3)}, "from -3 to 2") if o.name in FILLED else Break(shape((3, 3), name), "within [2, 3]")
        )
        for first in ("self", "selfRef")
    },
    "same shape as index": lambda o, name: Break(shape((3, 2), name), "shape [2, 5]"),
    "room for all": lambda o, name: Break(shape((7, 7), name), "[2, 6]" if "v2" in o.name else "[6, 2]"),
    "allowed value": lambda o, name: (
        Break({name: 6}, "4 or 5")
        if o.name in REDUCED
        else Break({name: 5}, "3 or 4")
        if o.name != "gather_v3"
        else Break({name: 1, "out": T(D.FLOAT, (2, 4, 1))}, "0")
        if name == "dim"
        else Break({name: -1}, "1" if name == "mode" else "0")
    ),
    "no private format among them": lambda o, name: Break(
        {name: (T(D.INT64, (2,), Format.FORMAT_FRACTAL_NZ),)}, "such as ACL_FORMAT_ND"
    ),
    "batches": lambda o, name: Break(
        {"batchDims": 1, "dim": 1, "index": T(D.INT32, (4, 1)), "out": T(D.FLOAT, (2, 1))}
        if name == "index"
        else {name: -1},
        "[2] (batchDims)" if name == "index" else "from 0 to 0",
        product=Product.ASCEND_950,
    ),
    "converts to self's data type": lambda o, name: Break({name: scalar(1, D.FLOAT)}, "ACL_INT32", D.INT32),
    "fast": lambda o, name: Break({"dim": 1, "source": T(D.FLOAT, (2, 3)), name: 0}, "another with ACL_FLOAT"),
    "dimension of selfRef": lambda o, name: Break({name: 2}, "from -2 to 1"),
}


def numbers(operator: str, name: str, array: Array) -> Array:
    return np.array([[2, 0, 1]]) if name == "index" and "scatter" in operator else array


class TestIndexing(LibraryTests):
    subject = Subject(
        indexing.OPERATORS,
        calls=CALLS,
        references=REFERENCES,
        dtypes=DTYPES,
        empty=EMPTY,
        breaks=BREAKS,
        indices=INDICES,
        numbers=numbers,
        plain=("nonzero", "nonzero_v2"),
        codes={"fast": NO_KERNEL},
    )


@pytest.mark.parametrize("name", ["index", "index_put_impl"])
def test_an_index_out_of_range_is_reported_with_the_functions_name(name: str) -> None:
    """Phase one does not read indices, and of a thousand queued tasks it matters which failed."""
    function = next(each.function for each in indexing.OPERATORS if each.name == name)
    with pytest.raises(AclnnError, match=rf"^{function}: index 1000 is out of bounds"):
        TestIndexing.subject.run_with_index(name, 1000)


@pytest.mark.parametrize("index", [-1, 1000])
@pytest.mark.parametrize(
    "name",
    [
        "gather",
        "gather_v3",
        "index_add",
        "index_add_v2",
        "index_copy",
        "index_select",
        "scatter",
        "scatter_add",
        "inplace_scatter_value",
    ],
)
def test_an_index_does_not_count_from_the_end(name: str, index: int) -> None:
    """PyTorch rejects negative indices too; -1 selected the last element."""
    function = next(each.function for each in indexing.OPERATORS if each.name == name)
    with pytest.raises(AclnnError, match=rf"^{function}: index: expected indices from 0 to [12], got {index}"):
        TestIndexing.subject.run_with_index(name, index)


@pytest.mark.parametrize("index", [(2, 3, 2), (2, 3)])
@pytest.mark.parametrize(("dim", "batches"), [(2, 1), (-1, 2), (1, 1), (1, 0)])
def test_gather_v2_takes_indices_for_each_batch(dim: int, batches: int, index: tuple[int, ...]) -> None:
    """On Ascend 950, as TensorFlow's gather."""
    random = np.random.default_rng(5)
    values, places = random.normal(size=(2, 3, 4)).astype(np.float32), random.integers(0, 3, index)
    lead = list(itertools.product(*map(range, values.shape[:batches])))
    expected = np.stack([np.take(values[at], places[at], dim % 3 - batches) for at in lead])
    expected = expected.reshape(*values.shape[:batches], *expected.shape[1:])
    shape = (*values.shape[: dim % 3], *index[batches:], *values.shape[dim % 3 + 1 :])
    placed = {name: Placed(x, "contiguous") for name, x in (("self", values), ("index", places))}
    out = Placed(np.empty(shape, np.float32), "contiguous")
    call = {name: each.tensor for name, each in placed.items()} | {"dim": dim, "batchDims": batches, "mode": 0}
    prepare(BY_NAME["gather_v3"], call | {"out": out.tensor}, Product.ASCEND_950).run()
    np.testing.assert_array_equal(out.view, expected)


@pytest.mark.parametrize("product", [Product.ATLAS_A2, Product.ASCEND_950])
def test_gather_v2_with_one_index_keeps_the_dimension(product: Product) -> None:
    values, index = (Placed(x, "contiguous") for x in (np.arange(6).reshape(2, 3), np.array(1)))
    out = Placed(np.empty(3, np.int64), "contiguous")
    call = {"self": values.tensor, "index": index.tensor, "out": out.tensor, "dim": 0, "batchDims": 0, "mode": 1}
    prepare(BY_NAME["gather_v3"], call, product).run()
    assert out.view.tolist() == [3, 4, 5]


def test_a_number_has_one_row() -> None:
    call = {"self": np.array(3, np.float32), "dim": 0, "index": np.array([0]), "out": np.array(0, np.float32)}
    assert computed("index_select", call)["out"] == 3
    with pytest.raises(AclnnError, match="index: expected indices from 0 to 0, got 5"):
        computed("index_select", call | {"index": np.array([5])})


@pytest.mark.parametrize("accumulate", [False, True])
def test_values_that_a_mask_does_not_take_are_reported(accumulate: bool) -> None:
    """Phase one does not know how many it takes."""
    call = {"selfRef": np.zeros(3, np.float32), "indices": (np.array([True, False, True]),)}
    call |= {"values": np.ones(3, np.float32), "accumulate": accumulate, "unsafe": False}
    with pytest.raises(AclnnError, match=r"^aclnnIndexPutImpl: values: expected as many as are selected, got \[3\]"):
        computed("index_put_impl", call)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1, 2)])
def test_values_take_the_shape_of_the_selection(shape: tuple[int, ...]) -> None:
    call = {"selfRef": np.zeros(3, np.float32), "indices": (np.array([0, 2]),)}
    call |= {"values": np.ones(shape, np.float32), "accumulate": False, "unsafe": False}
    assert computed("index_put_impl", call)["selfRef"].tolist() == [1, 0, 1]


def test_a_source_of_other_dimensions_is_rejected() -> None:
    x, index = Tensor(D.FLOAT, (2, 3)), Tensor(D.INT64, (1, 3))
    call = {"self": x, "dim": 0, "index": index, "src": Tensor(D.FLOAT, (3,)), "reduce": 0, "out": x}
    with pytest.raises(AclnnError, match=r"src: expected 2 dimensions \(as self\), got \[3\]"):
        prepare(BY_NAME["scatter"], call, Product.ATLAS_A2)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("d", [D.FLOAT, D.INT64])
def test_an_empty_selection_writes_nothing(d: D, accumulate: bool) -> None:
    """An empty index selected the whole dimension, like the index that torch_npu passes for none."""
    elements = np.arange(12).reshape(3, 4).astype(d.numpy)
    placed, values, nothing = (Placed(x, "contiguous") for x in (elements, elements[:1], np.zeros(0, np.int64)))
    arguments = {"selfRef": placed.tensor, "values": values.tensor, "accumulate": accumulate, "unsafe": False}
    prepare(BY_NAME["index_put_impl"], arguments | {"indices": (nothing.tensor,)}, Product.ATLAS_A2).run()
    np.testing.assert_array_equal(placed.view, elements)


def test_an_empty_index_may_have_any_data_type() -> None:
    """PyTorch accepts any type of empty index; CANN checks the type of other indices."""
    x, out = (Placed(each, "contiguous") for each in (np.arange(5.0, dtype=np.float32), np.zeros(5, np.float32)))
    index, nothing = Tensor(D.UINT8, (2, 0)), Tensor(D.FLOAT, (0,))
    gathered = {"self": x.tensor, "dim": 0, "index": Tensor(D.UINT8, (0,)), "out": nothing}
    prepare(BY_NAME["gather"], gathered, Product.ASCEND_950)
    added = {"self": x.tensor, "dim": 0, "index": index, "src": nothing, "out": out.tensor}
    prepare(BY_NAME["scatter_add"], added, Product.ASCEND_950).run()
    np.testing.assert_array_equal(out.view, x.view)


def test_the_places_of_a_single_number_take_no_room() -> None:
    """PyTorch passes room for none if it is 0."""
    for out in ((0, 0), (1, 0)):
        arguments = {"self": Tensor(D.FLOAT, ()), "out": Tensor(D.INT64, out)}
        prepare(BY_NAME["nonzero"], arguments, Product.ASCEND_950)


@pytest.mark.parametrize("included", [True, False])
@pytest.mark.parametrize(("reduce", "how"), [*enumerate(("sum", "prod", "amax", "amin", "mean"), 1)])
@pytest.mark.parametrize("d", [D.FLOAT, D.BF16, D.INT32, D.UINT8])
@pytest.mark.parametrize("name", REDUCED)
def test_scatter_reduce_computes_every_reduction(name: str, d: D, reduce: int, how: str, included: bool) -> None:
    """All but sums of FLOAT were rejected, which CANN's example of aclnnScatterReduce asks for."""
    index = np.array([[0, 1, 2, 1], [0, 1, 2, 0], [2, 2, 1, 0]])
    values, source = (array.astype(d.numpy) for array in (np.full((4, 4), 2), np.arange(1, 17).reshape(4, 4) % 5))
    call: dict[str, Any] = {"dim": 0, "index": index, "src": source, "reduce": reduce, "includeSelf": included}
    call |= {"selfRef": values.copy()} if name.startswith("inplace") else {"self": values, "out": values * 0}
    found = computed(name, call)["selfRef" if "selfRef" in call else "out"]
    start, added = (torch.tensor(array.astype(np.float64)) for array in (values, source))
    expected = start.scatter_reduce(0, torch.tensor(index), added, how, include_self=included).numpy()
    if d in (D.INT32, D.UINT8):
        expected = np.floor(expected)
    np.testing.assert_array_equal(found, expected.astype(d.numpy))


def test_a_scatter_without_a_reduction_replaces() -> None:
    values, index = np.zeros((1, 4), np.float32), np.array([[2, 0]])
    call = {"dim": 1, "index": index, "src": np.float32([[5, 6]]), "reduce": 0, "includeSelf": False}
    found = computed("inplace_scatter_reduce", call | {"selfRef": values})["selfRef"]
    assert found.tolist() == [[6, 0, 5, 0]]


def test_rows_are_chosen_from_the_end_by_the_example_of_gather_v2() -> None:
    """The task failed at -2, which CANN's example of aclnnGatherV2 has with -1, 0 and 1."""
    values, index = np.arange(4, dtype=np.float32).reshape(2, 2), np.array([[-2, -1], [0, 1]])
    found = computed("gather_v2", {"self": values, "dim": 0, "index": index, "out": np.zeros((2, 2, 2), np.float32)})
    assert found["out"].tolist() == [[[0, 1], [2, 3]]] * 2


@pytest.mark.parametrize(("name", "transposed"), [("nonzero", False), ("nonzero_v2", True)])
def test_room_for_what_is_found_is_enough(name: str, transposed: bool) -> None:
    """CANN's example of aclnnNonzeroV2 has room for 7 of 8 elements, one of which is 0; it was rejected."""
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    expected = np.argwhere(values).T if transposed else np.argwhere(values)
    found = computed(name, {"self": values, "out": np.zeros(expected.shape, np.int64)})["out"]
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(AclnnError, match=r"out: expected shape \[(4, 2|2, 8|8, 2)\] \(the nonzero elements\), got"):
        computed(name, {"self": values + 1, "out": np.zeros(expected.shape, np.int64)})


def test_scatter_add_adds_repeated_indices() -> None:
    """The numbers of CANN's host test, with a place taken twice."""
    values = np.repeat(np.array([[1], [2], [3]], np.float32), 4, 1)
    call = {"dim": 0, "index": np.array([[0, 1, 2, 1], [0, 0, 2, 1]]), "reduce": 1, "includeSelf": True}
    call |= {"selfRef": values, "src": np.arange(1, 13, dtype=np.float32).reshape(3, 4)}
    found = computed("inplace_scatter_reduce", call)["selfRef"].tolist()
    assert found == [[7, 7, 1, 1], [2, 4, 2, 14], [3, 3, 13, 3]]


@pytest.mark.parametrize("reduce", [3, 4])
@pytest.mark.parametrize("name", ["scatter", "inplace_scatter"])
def test_scatter_reduces_by_maximum_and_minimum(name: str, reduce: int) -> None:
    """Both were rejected, though CANN's host test uses them."""
    values, index = np.array([[1, 5, 3], [4, 2, 6]], np.float32), np.array([[0, 0, 2], [1, 1, 1]])
    source = np.array([[7, -1, 2], [3, 9, 0]], np.float32)
    call: dict[str, Any] = {"dim": 1, "index": index, "src": source, "reduce": reduce}
    call |= {"selfRef": values.copy()} if name.startswith("inplace") else {"self": values, "out": values * 0}
    found = computed(name, call)["selfRef" if "selfRef" in call else "out"]
    expected = torch.tensor(values).scatter_reduce(
        1, torch.tensor(index), torch.tensor(source), ("amax", "amin")[reduce - 3]
    )
    assert (found == expected.numpy()).all()


@pytest.mark.parametrize(
    ("name", "dtype", "product", "taken"),
    [
        *((name, D.UINT32, Product.ATLAS_A2, True) for name in ("gather", "index_select", "take")),
        *(
            (name, D.COMPLEX64, Product.ATLAS_A2, name == "index_select")
            for name in ("gather", "index_select", "index")
        ),
        ("index", D.COMPLEX64, Product.ASCEND_950, True),
        ("index_put_impl", D.COMPLEX64, Product.ASCEND_950, False),
        ("inplace_index_fill_tensor", D.INT8, Product.ATLAS_A2, True),
        ("inplace_index_fill_tensor", D.INT8, Product.ATLAS_TRAINING, False),
        ("inplace_index_fill_tensor", D.BF16, Product.ASCEND_950, True),
        ("inplace_index_fill_tensor", D.COMPLEX64, Product.ATLAS_A2, False),
        ("index_fill", D.INT8, Product.ATLAS_A2, False),
        ("index_fill", D.INT8, Product.ASCEND_950, True),
        ("embedding_dense_backward", D.FLOAT, Product.ATLAS_A2, False),
    ],
)
def test_elements_are_moved_of_the_data_types_that_cann_moves(
    name: str, dtype: D, product: Product, taken: bool
) -> None:
    """As in the lists of CANN's host code: more unsigned integers, fewer complex numbers, no indices of BF16."""
    x, index = Tensor(dtype, (2, 3)), Tensor(D.INT64, (2, 3))
    calls: Mapping[str, Mapping[str, Any]] = {
        "gather": {"self": x, "dim": 0, "index": index, "out": x},
        "take": {"self": x, "index": index, "out": x},
        "index_select": {"self": x, "dim": 0, "index": Tensor(D.INT64, (2,)), "out": x},
        "index": {"self": x, "indices": (Tensor(D.INT64, (2,)),), "out": x},
        "index_put_impl": {
            "selfRef": x,
            "indices": (Tensor(D.INT64, (2,)),),
            "values": x,
            "accumulate": False,
            "unsafe": False,
        },
        "index_fill": {"self": x, "dim": 0, "index": Tensor(D.INT64, ()), "value": scalar(1, D.FLOAT), "out": x},
        "inplace_index_fill_tensor": {"selfRef": x, "dim": 0, "index": (0,), "value": scalar(1, D.FLOAT)},
        "embedding_dense_backward": {
            "grad": x,
            "indices": Tensor(D.BF16, (2,)),
            "numWeights": 2,
            "paddingIdx": 5,
            "scaleGradByFreq": False,
            "out": x,
        },
    }
    if taken:
        assert prepare(BY_NAME[name], calls[name], product).prepared.plan
    else:
        with pytest.raises(AclnnError, match="expected data type"):
            prepare(BY_NAME[name], calls[name], product)


def test_an_empty_tensor_is_filled_at_any_index() -> None:
    """CANN's host code checks neither; an index was rejected."""
    call = {"selfRef": Tensor(D.INT32, (2, 0)), "dim": 1, "index": (0, 2), "value": scalar(1, D.INT32)}
    prepare(BY_NAME["inplace_index_fill_tensor"], call, Product.ATLAS_A2)


def test_indices_outside_are_not_filled() -> None:
    """Phase one does not read the indices of a tensor; negative ones count from the end, as in PyTorch."""
    x, index = np.zeros((2, 3), np.int32), np.array([-1, 3, -4, 0])
    call = {"self": x, "dim": 1, "index": index, "value": scalar(7, D.FLOAT), "out": x + 1}
    assert computed("index_fill", call)["out"].tolist() == [[7, 0, 7]] * 2
