"""Every operator on every product, data type and layout: exact values, and nothing else written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aclnn.core.dtypes import DataType
from aclnn.core.operator import Kind
from aclnn.core.products import Product, set_soc_name
from aclnn.core.tensor import Tensor
from aclnn.execution import arrays
from aclnn.execution.executor import prepare
from tests.cases import CASES
from tests.cases.table import Accepted, Case, Example, T, changed
from tests.helpers.calls import bound, check, compiles_long, memory, run, wanted
from tests.helpers.exact import NUMPY
from tests.helpers.guarded import SHAPES, Guarded, layouts

#: Edges for which a row's formula is a kernel of its own; test_rows has such rows of a few operators in every run.
ALONE = ("one column", "one element", "one element a channel", "one element a group")
EDGES = [
    pytest.param(
        case,
        accepted,
        id=f"{case.name}-{accepted.name}",
        marks=[pytest.mark.long] if compiles_long(case.operator) and accepted.name in ALONE else [],
    )
    for case in CASES
    for accepted in case.accepted
]
EXAMPLES = [
    pytest.param(case, example, id=f"{case.name}-{i}") for case in CASES for i, example in enumerate(case.examples)
]


BY_LAYOUT = [
    pytest.param(case, marks=[pytest.mark.long] if compiles_long(case.operator) else [], id=case.name) for case in CASES
]


@pytest.mark.parametrize(("case", "accepted"), EDGES)
@pytest.mark.parametrize("float32", [True, pytest.param(False, marks=pytest.mark.long)], ids=["float32", "others"])
def test_edge_cases_are_computed(case: Case, accepted: Accepted, float32: bool) -> None:
    rng = np.random.default_rng(4)
    dtypes = {
        product: [dtype for dtype in case.dtypes.get(product, ()) if float32 == (dtype == DataType.FLOAT)]
        for product in accepted.products
    }
    served = [product for product, found in dtypes.items() if found]
    for product in dict.fromkeys(served[:1] + served[-1:]):
        for dtype in dtypes[product]:
            arguments = changed(case.call(dtype), accepted.change)
            check(case, arguments, memory(case, arguments, rng), product)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_extent_of_one_may_have_any_stride(case: Case) -> None:
    arguments = {
        name: Tensor(value.dtype, value.shape, format=value.format) if isinstance(value, T) else value
        for name, value in case.call(DataType.FLOAT).items()
    }
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.shape == (2, 3):
            arguments[name] = Tensor(value.dtype, (2, 3), (3, 1))
    for tensor in arguments.values():
        if isinstance(tensor, Tensor) and 1 in tensor.shape:
            tensor.strides = tuple(
                2**63 - 1 if extent == 1 else stride
                for extent, stride in zip(tensor.shape, tensor.strides, strict=True)
            )
    prepare(case.operator, arguments, case.product)


@pytest.mark.parametrize(("case", "example"), EXAMPLES)
def test_worked_examples_to_the_last_printed_digit(case: Case, example: Example) -> None:
    def array(value: tuple[T, list[float]] | None) -> object:
        return None if value is None else np.array(value[1], value[0].dtype.numpy).reshape(value[0].shape)

    set_soc_name(case.product.example)
    inputs = [array(example.inputs[p.name]) for p in case.operator.inputs]
    attributes = tuple(example.attributes[p.name] for p in case.operator.attributes)
    results = arrays.call(case.operator, inputs, attributes, (None,) * len(case.operator.outputs))
    results = results if isinstance(results, tuple) else (results,)
    written = {p.name: result for p, result in zip(case.operator.outputs, results, strict=True)}
    assert written.keys() <= example.printed.keys()
    written |= {p.name: value for p, value in zip(case.operator.inputs, inputs, strict=True) if p.updated}
    for name, printed in example.printed.items():
        assert " ".join(f"{value:f}" for value in written[name].ravel()) == printed


#: Layouts are left to one loop for all operators, which has tests of its own; each mix of data types is a kernel.
LAYOUTS = settings(max_examples=settings.default.max_examples // 3)
MIXES = settings(max_examples=settings.default.max_examples // 15)


@pytest.mark.parametrize("case", BY_LAYOUT)
@LAYOUTS
@given(data=st.data())
def test_any_layout_gives_the_same_results(case: Case, data: st.DataObject) -> None:
    check_any_call(case, data, mixed=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", BY_LAYOUT)
@MIXES
@given(data=st.data())
def test_any_mix_of_data_types_is_computed(case: Case, data: st.DataObject) -> None:
    check_any_call(case, data, mixed=True)


def check_any_call(case: Case, data: st.DataObject, mixed: bool) -> None:
    product = data.draw(st.sampled_from([p for p in (Product.ASCEND_950, case.product) if p in case.dtypes]))
    arguments = data.draw(valid_calls(case, product, mixed))
    outputs = {p.name for p in case.operator.parameters if p.kind is Kind.OUTPUT or p.updated}
    strides = {
        name: data.draw(layouts(value.shape, overlap=name not in outputs), label=f"strides of {name}")
        for name, value in arguments.items()
        if isinstance(value, T)
    }
    rng = np.random.default_rng(data.draw(st.integers(0, 1000), label="seed"))
    check(case, arguments, memory(case, arguments, rng, strides), product)


@pytest.mark.parametrize("case", [given for given in BY_LAYOUT if given.values[0].operator.inputs])
@LAYOUTS
@given(data=st.data())
def test_overlapping_outputs_are_as_if_inputs_had_been_read_first(case: Case, data: st.DataObject) -> None:
    """All tensors are in one storage, inputs overlapping one another and the first output overlapping them."""
    inputs = {p.name for p in case.operator.inputs if not p.updated}
    placed = inputs | {*[*wanted(case, case.call(DataType.FLOAT))][:1]}
    # One storage has one data type.
    of_one_type = [
        d
        for d in case.dtypes[case.product]
        if {v.dtype for k, v in case.call(d).items() if k in placed and v is not None} == {d}
    ]
    dtype = data.draw(st.sampled_from(of_one_type))
    arguments = changed(case.call(dtype), case.shaped(data.draw(small_shapes), data.draw(small_shapes)))
    target = next(iter(wanted(case, arguments)), "")
    assume(target)
    tensors = {
        name: Guarded(
            value.dtype,
            value.shape,
            data.draw(layouts(value.shape, overlap=name in inputs), label=f"strides of {name}"),
            shift=data.draw(st.integers(0, 12), label=f"shift of {name}"),
        )
        for name, value in arguments.items()
        if isinstance(value, T)
    }
    separate: dict[str, object] = dict(arguments)
    together: dict[str, object] = dict(arguments)
    rng = np.random.default_rng(5)
    size = max(view.storage.size for view in tensors.values())
    storage = rng.uniform(0.5, 2, size).astype(NUMPY[dtype])
    for name, view in tensors.items():
        view.storage[...] = storage[: view.storage.size]
        alone = Guarded(view.dtype, view.shape).fill(view.array)
        separate[name] = alone
        if name in inputs or name == target:
            view.place(storage)
        together[name] = view
    run(prepare(case.operator, bound(separate), case.product))
    before = storage.copy()
    run(prepare(case.operator, bound(together), case.product))
    for name in wanted(case, arguments):
        assert together[name].array.tobytes() == separate[name].array.tobytes(), name
    outside = ~tensors[target].mask(size)
    assert storage[outside].tobytes() == before[outside].tobytes()


@pytest.mark.parametrize("case", [case for case in CASES if case.operator.inputs], ids=lambda case: case.name)
@pytest.mark.parametrize("size", [*(pytest.param(size, marks=pytest.mark.long) for size in (1, 100)), 5000, 200_000])
@pytest.mark.parametrize("more_types", [False, pytest.param(True, marks=pytest.mark.long)], ids=["", "more types"])
def test_an_output_may_be_an_input(case: Case, size: int, more_types: bool) -> None:
    for dtype in case.dtypes[case.product]:
        if more_types != (compiles_long(case.operator) and dtype != DataType.FLOAT):
            continue
        arguments = changed(case.call(dtype), case.shaped((max(size // 100, 1),), (min(size, 100),)))
        target, value = next(iter(wanted(case, arguments).items()))
        rng = np.random.default_rng(6)
        guarded = memory(case, arguments, rng)
        run(prepare(case.operator, bound(guarded), case.product))
        for parameter in case.operator.inputs:
            view = guarded[parameter.name]
            if view is not None and not parameter.updated and (view.dtype, view.shape) == (value.dtype, value.shape):
                original = view.array.copy()
                run(prepare(case.operator, bound(guarded | {target: view}), case.product))
                assert view.array.tobytes() == guarded[target].array.tobytes()
                assert view.unchanged_outside()
                view.fill(original)


small_shapes = st.sampled_from([(), (1,), (3,), (4, 2), (17,), (2, 0)])
few_dims = st.one_of(st.just(()), st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple))


@st.composite
def valid_calls(draw: st.DrawFn, case: Case, product: Product, mixed: bool) -> dict[str, object]:
    dtypes = st.sampled_from(case.dtypes[product])
    arguments = case.call(draw(dtypes))
    if case.curves:
        arguments |= draw(st.sampled_from(tuple(case.curves.values()))).attributes
        rows, columns = draw(SHAPES), ()
    else:
        rows, columns = draw(few_dims), draw(st.one_of(few_dims, st.sampled_from([(700,), (2, 300), (1030,)])))
    arguments = changed(arguments, case.shaped(rows, columns))
    return changed(arguments, case.mixed(draw, product, arguments) if mixed else {})
