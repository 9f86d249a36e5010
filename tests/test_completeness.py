"""The table of cases is complete: no operator, check, product, data type or corner without its rows."""

from __future__ import annotations

import pytest

import aclnn
from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Kind
from aclnn.core.products import Product, product_of
from aclnn.operators import OPERATORS
from tests.cases import CASES
from tests.cases.table import MODERN, PRODUCTS, SOC_NAMES, Case

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def test_every_operator_has_one_row() -> None:
    assert sorted(case.name for case in CASES) == sorted(operator.name for operator in OPERATORS)


def test_every_product_has_a_name() -> None:
    assert set(PRODUCTS) == set(Product)
    assert all(product_of(name) is product for product, name in SOC_NAMES.items())
    assert all(product_of(product.example) is product for product in Product)


@every_case
def test_every_check_has_a_failing_call(case: Case) -> None:
    assert {check.name for check in case.operator.checks} == {rejection.check for rejection in case.rejected}


@every_case
def test_check_names_are_distinct(case: Case) -> None:
    names = [check.name for check in case.operator.checks]
    assert len(names) == len(set(names))


@every_case
def test_every_argument_that_a_check_names_has_a_failing_call(case: Case) -> None:
    for check in case.operator.checks:
        title, _, listed = check.name.partition(": ")
        rows = {rejection.argument for rejection in case.rejected if rejection.check == check.name}
        named = {p.name for p in case.operator.parameters} & set(listed.split(", "))
        # A relation between arguments is told of one of them; a list of data types may leave out what stands before.
        if title not in ("promotable", "one data type"):
            assert named <= rows | _told_of_the_first(case, title), check.name


def _told_of_the_first(case: Case, title: str) -> set[str]:
    """Return arguments whose failing call is rejected by an earlier check of the same list."""
    if case.name == "silu_backward" and title == "data type":
        return {"gradOutput"}  # bfloat16 of one only is rejected as a difference before
    if title == "float16 for implMode 2":
        return {"biasOptional"}  # has weight's data type by then
    return set()


@every_case
def test_every_required_pointer_has_a_null_call(case: Case) -> None:
    pointers = {
        p.name for p in case.operator.parameters if p.kind not in (Kind.BOOL, Kind.DOUBLE, Kind.INT64, Kind.INT32)
    }
    nulls = {rejection.argument for rejection in case.rejected if rejection.got == "null"}
    optional = {p.name for p in case.operator.parameters if p.optional and p.kind is not Kind.OUTPUT}
    if "layer_norm" in case.name and "outputMask" not in pointers:  # nothing says which outputs are wanted
        optional |= {p.name for p in case.operator.outputs if p.optional}
    if case.name == "add_rms_norm":
        optional.add("rstdOut")  # chooses the mode
    assert pointers - optional == nulls


@every_case
def test_support_is_what_the_documents_say(case: Case) -> None:
    assert {product: {*dtypes, *case.also.get(product, ())} for product, dtypes in case.dtypes.items()} == {
        product: set(dtypes) for product, dtypes in case.operator.support.items()
    }
    assert set(case.dtypes) | set(case.unsupported) == set(PRODUCTS)
    assert not set(case.dtypes) & set(case.unsupported)
    with_bfloat16 = {product for product, dtypes in case.dtypes.items() if D.BF16 in dtypes}
    assert with_bfloat16 == (set() if case.name == "shrink" else set(case.dtypes) & set(MODERN))


@every_case
def test_every_case_has_edges(case: Case) -> None:
    names = " ".join(accepted.name for accepted in case.accepted)
    if any(rejection.check.startswith("at least 1 dimension") for rejection in case.rejected):
        names += " 0-dim is rejected"
    if any(rejection.check.startswith("4 dimensions: ") for rejection in case.rejected):
        names += " 8 dimensions are rejected"
    expected = ("no columns", "no rows", "8 dimensions") if case.reference else ("empty", "0-dim", "dimensions")
    assert all(name in names for name in expected)
    assert bool(case.curves) != bool(case.reference)


@every_case
def test_backward_operators_have_worked_examples(case: Case) -> None:
    assert case.examples or "backward" not in case.name
    for example in case.examples:
        updated = {p.name for p in case.operator.inputs if p.updated}
        assert set(example.printed) - updated == {p.name for p in case.operator.outputs}


@every_case
def test_the_python_function_is_public_and_speaks_pytorch(case: Case) -> None:
    function = getattr(aclnn, case.name)
    assert function is case.python
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = [p.python_name for p in case.operator.parameters if p.kind is not Kind.OUTPUT]
    if case.operator.inputs:
        assert sorted(names) == sorted([*given, "out"])
    assert function.__doc__
    assert case.operator.function in function.__doc__
