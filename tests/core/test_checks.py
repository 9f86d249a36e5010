"""Phase one: every row of the tables "Checks, in order", on every product, through the executor."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from aclnn.core.checks import among, fits, value_is, view_violation
from aclnn.core.dtypes import DataType as D
from aclnn.core.dtypes import Format
from aclnn.core.operator import Call, Check
from aclnn.core.products import Product
from aclnn.core.status import AclnnError
from aclnn.core.tensor import Tensor
from aclnn.execution.executor import prepare, prepare_layouts
from tests.cases import CASES
from tests.cases.table import (
    FLOATS,
    INVALID,
    MODERN,
    NO_KERNEL,
    NO_KERNEL_FOUND,
    PRODUCTS,
    REJECTED_DTYPES,
    TILING,
    Accepted,
    Arguments,
    Case,
    Rejected,
    T,
    changed,
)

pytestmark = pytest.mark.usefixtures("without_kernels")

ROWS = [
    pytest.param(case, rejection, id=f"{case.name}-{place}-{rejection.argument}")
    for case in CASES
    for place, rejection in enumerate(case.rejected)
]
EDGES = [
    pytest.param(case, accepted, id=f"{case.name}-{accepted.name}") for case in CASES for accepted in case.accepted
]


def tensors(arguments: Arguments) -> dict[str, Any]:
    """Return the arguments with tensors in place of descriptions, with null addresses, which phase one accepts."""
    return {
        name: Tensor(value.dtype, value.shape, format=value.format) if isinstance(value, T) else value
        for name, value in arguments.items()
    }


def error_of(case: Case, arguments: Arguments, product: Product) -> AclnnError:
    with pytest.raises(AclnnError) as caught:
        prepare(case.operator, tensors(arguments), product)
    return caught.value


def assert_reads(error: AclnnError, case: Case, rejection: Rejected) -> None:
    assert_is_of(error, case, rejection)
    expected, got = error.message.rsplit(", got ", 1)
    assert rejection.expected in expected, error
    assert rejection.got in got, error


def assert_is_of(error: AclnnError, case: Case, rejection: Rejected) -> None:
    """Check an error's code, function, argument and kind; values may differ."""
    assert error.code == rejection.code, error
    function, argument, text = error.message.split(": ", 2)
    assert function == case.operator.function
    assert argument == rejection.argument, error
    expected, got = text.rsplit(", got ", 1)
    assert expected.startswith("expected "), error
    assert words(rejection.expected) <= words(expected), error
    assert got


def invalid_on(case: Case, product: Product) -> int:
    """Return the code of a call with an invalid data type."""
    return NO_KERNEL_FOUND if case.unsupported.get(product, (0, ""))[0] == NO_KERNEL_FOUND else INVALID


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"ACL_\w+", "", text)))


def breaks(case: Case, check: str, arguments: Arguments, product: Product) -> bool:
    call = Call(case.operator, tensors(arguments), product)
    (found,) = (c for c in case.operator.checks if c.name == check)
    try:
        return found.violation(call) is not None
    except (
        AttributeError,
        TypeError,
        IndexError,
        ValueError,
        ZeroDivisionError,
    ):  # it needs an argument that an earlier row demands
        return True


@pytest.mark.parametrize(("case", "rejection"), ROWS)
def test_every_check_rejects_its_case_on_every_product(case: Case, rejection: Rejected) -> None:
    """By its own check, the first that is broken, and after a call that was accepted and differs in a single property:
    what is remembered of a call must tell it from every other.
    """
    for product in rejection.products:
        for dtype in rejection.dtypes:
            if dtype not in case.dtypes.get(product, FLOATS[:2]):
                continue
            with suppress(AclnnError):  # 561103, if the product has no kernel
                prepare(case.operator, tensors(case.call(dtype)), product)
            arguments = changed(case.call(dtype), rejection.change)
            assert_reads(error_of(case, arguments, product), case, rejection)
            names = [check.name for check in case.operator.checks]
            assert next(name for name in names if breaks(case, name, arguments, product)) == rejection.check


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_checks_are_made_in_the_declared_order(case: Case) -> None:
    tabled = list(dict.fromkeys(rejection.check for rejection in case.rejected))
    assert tabled == [check.name for check in case.operator.checks]
    codes = {rejection.check: rejection.code for rejection in case.rejected}
    assert codes == {check.name: check.code for check in case.operator.checks}


@pytest.mark.slow
@pytest.mark.parametrize(("case", "earlier"), ROWS)
def test_the_earlier_of_two_violations_is_reported(case: Case, earlier: Rejected) -> None:
    for later in case.rejected[case.rejected.index(earlier) + 1 :]:
        for product, arguments in twice_broken(case, earlier, later):
            assert_is_of(error_of(case, arguments, product), case, earlier)


def twice_broken(case: Case, earlier: Rejected, later: Rejected) -> Iterator[tuple[Product, Arguments]]:
    """Yield a call on each product that fails two checks: with the later row's change, then the earlier row's."""
    for product in set(earlier.products) & set(later.products):
        for dtype in sorted(set(earlier.dtypes) & set(later.dtypes) & set(case.dtypes.get(product, FLOATS[:2]))):
            arguments = merged(case.call(dtype), later, earlier)
            if arguments is not None and all(
                breaks(case, check, arguments, product) for check in (earlier.check, later.check)
            ):
                yield product, arguments
                break


def merged(arguments: Arguments, later: Rejected, earlier: Rejected) -> Arguments | None:
    try:
        return changed(changed(arguments, later.change), earlier.change)
    except AssertionError:  # the earlier change is to a tensor that the later one has made null
        return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_of_neighbouring_checks_is_tested(case: Case) -> None:
    rows = defaultdict(list)
    for rejection in case.rejected:
        rows[rejection.check].append(rejection)
    neighbours = set(pairwise(check.name for check in case.operator.checks)) - set(case.together)
    untested = {
        (earlier, later)
        for earlier, later in neighbours
        if not any(any(twice_broken(case, one, other)) for one in rows[earlier] for other in rows[later])
    }
    assert untested == case.never_together


@pytest.mark.parametrize(
    ("case", "pair"),
    [pytest.param(case, pair, id=f"{case.name}-{i}") for case in CASES for i, pair in enumerate(case.together)],
)
def test_calls_with_two_violations_report_the_first(case: Case, pair: tuple[str, str]) -> None:
    earlier, later = pair
    arguments = changed(case.call(D.FLOAT), case.together[pair])
    first = next(rejection for rejection in case.rejected if rejection.check == earlier)
    product = next(product for product in reversed(first.products) if breaks(case, later, arguments, product))
    assert breaks(case, earlier, arguments, product)
    error = error_of(case, arguments, product)
    assert error.code == first.code
    assert words(first.expected) <= words(error.message), error


@pytest.mark.parametrize(("case", "accepted"), EDGES)
def test_edge_cases_are_accepted(case: Case, accepted: Accepted) -> None:
    for product in accepted.products:
        for dtype in case.dtypes.get(product, ()):
            prepare(case.operator, tensors(changed(case.call(dtype), accepted.change)), product)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_product_accepts_its_data_types(case: Case, product: Product) -> None:
    supported = case.dtypes.get(product, ())
    for dtype in FLOATS:
        arguments = case.call(dtype)
        if dtype in supported:
            assert prepare(case.operator, tensors(arguments), product).prepared.plan is not None
        else:
            # Without a kernel the product's rejection; without bfloat16 only, the data type's.
            code, text = case.unsupported.get(product, (INVALID, "data type"))
            error = error_of(case, arguments, product)
            without_bfloat16 = dtype == D.BF16 and product not in MODERN
            assert error.code == (invalid_on(case, product) if without_bfloat16 else code), error
            assert without_bfloat16 or text in error.message, error


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_data_types_without_a_kernel_are_rejected_last(case: Case, product: Product) -> None:
    taken = {*case.dtypes[case.product], *(dtype for dtypes in case.also.values() for dtype in dtypes)}
    for dtype in set(REJECTED_DTYPES) - taken:
        accepted = dtype in case.no_kernel and invalid_on(case, product) == INVALID
        code = NO_KERNEL if accepted else invalid_on(case, product)
        assert error_of(case, case.call(dtype), product).code == code


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_empty_tensors_need_no_kernel(case: Case, product: Product) -> None:
    (empty,) = (accepted for accepted in case.accepted if accepted.name in ("empty", "no columns"))
    arguments = tensors(changed(case.call(D.FLOAT), empty.change))
    if product in empty.products and invalid_on(case, product) == INVALID:
        executor = prepare(case.operator, arguments, product)
        assert executor.asked_bytes == 0
        executor.run()
    else:
        with pytest.raises(AclnnError) as caught:
            prepare(case.operator, arguments, product)
        assert caught.value.code == invalid_on(case, product)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_negative_dimensions_are_rejected(case: Case) -> None:
    arguments = {
        name: value._replace(shape=tuple(-extent for extent in value.shape)) if isinstance(value, T) else value
        for name, value in case.call(D.FLOAT).items()
    }
    if "normalizedShape" in arguments:
        arguments["normalizedShape"] = (-3,)
    error = error_of(case, arguments, Product.ATLAS_A2)
    assert error.code in (INVALID, TILING)
    assert "expected " in error.message


@pytest.mark.parametrize("strides", [(2**62, 1), (-(2**62), 1), (1, 2**63 - 1)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_strides_beyond_every_address_are_rejected(case: Case, strides: tuple[int, int]) -> None:
    for parameter in case.operator.parameters:
        arguments = tensors(case.call(D.FLOAT))
        tensor = arguments[parameter.name]
        if isinstance(tensor, Tensor) and len(tensor.shape) == len(strides) and 1 not in tensor.shape:
            tensor.strides = strides
            with pytest.raises(AclnnError) as caught:
                prepare(case.operator, arguments, Product.ATLAS_A2)
            assert caught.value.code == INVALID
            assert f": {parameter.name}: expected shape and strides that stay within" in caught.value.message


@pytest.mark.parametrize("case", [case for case in CASES if case.curves], ids=lambda case: case.name)
def test_more_elements_than_addresses_are_rejected(case: Case) -> None:
    shape = (2**40, 2**40)
    arguments = {
        name: Tensor(value.dtype, shape, (0, 0)) if isinstance(value, T) else value
        for name, value in case.call(D.FLOAT).items()
    }
    with pytest.raises(AclnnError) as caught:
        prepare(case.operator, arguments, Product.ATLAS_A2)
    assert caught.value.code == INVALID
    assert "expected" in caught.value.message


@pytest.mark.parametrize(
    ("dtype", "extent", "stride", "largest"),
    [
        (D.INT8, 2**63 - 1, 1, True),
        (D.INT8, 2**63, 1, False),
        (D.INT8, 2**63 - 1, 0, True),
        (D.INT8, 2**63, 0, False),
        (D.INT8, 2, 2 - 2**63, True),
        (D.INT8, 2, 1 - 2**63, False),
        (D.FLOAT, 2**61 - 1, 1, True),
        (D.FLOAT, 2**61, 1, False),
    ],
)
def test_a_view_may_span_all_addresses_and_no_more(dtype: D, extent: int, stride: int, largest: bool) -> None:
    violation = view_violation("self", Tensor(dtype, (extent,), (stride,)))
    assert violation is None if largest else "stay within" in str(violation)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_descriptions_are_checked_once(case: Case) -> None:
    first, second = (prepare_layouts(case.operator, tensors(case.call(D.FLOAT)), case.product) for _ in range(2))
    assert first is second


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_rejected_call_is_checked_again(case: Case) -> None:
    for _ in range(2):
        assert error_of(case, case.call(D.UINT16), Product.ATLAS_A2).code == INVALID


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_data_types_listed_in_errors_exist_on_the_product_and_are_listed_once(case: Case, product: Product) -> None:
    valid, texts = case.call(D.FLOAT), []
    for name in [name for name, value in valid.items() if isinstance(value, T)]:
        for dtype in (D.FLOAT16, D.INT32, D.UINT16):
            try:
                prepare(case.operator, tensors(changed(valid, {name: {"dtype": dtype}})), product)
            except AclnnError as error:
                texts.append(error.message)
    assert texts
    for text in texts:
        offered = re.findall(r"ACL_\w+", text.rsplit(", got ", 1)[0])
        assert len(offered) == len(set(offered)), text
        assert product.has_bfloat16 or "ACL_BF16" not in offered, text


POSITIVE = value_is("at least 1", lambda got: got >= 1, "k")
SQUARE = value_is("a square", lambda got: got[0] == got[1], "x")
WHOLE = value_is("32 elements", lambda got: got == 32, "x", of=lambda got: got.size)
ROWS = fits("{} rows (as many as x)", lambda call, got: (call["x"].shape[0], got.shape[0]), "y")
LONGER = fits("shape {} or a longer one", lambda call, y: (call["x"].shape, y.shape), "y", holds=lambda a, b: a <= b)
TYPES = among("data type {}", lambda call, got: ((D.BF16, call["x"].dtype), got.dtype), "y")
MODES = among("{}", lambda call, got: (("a", "b"), got), "mode")


@pytest.mark.parametrize(
    ("check", "title", "arguments", "text"),
    [
        (POSITIVE, "at least 1: k", {"k": 1}, None),
        (POSITIVE, "at least 1: k", {"k": 0}, "k: expected at least 1, got 0"),
        (SQUARE, "a square: x", {"x": (2, 2)}, None),
        (SQUARE, "a square: x", {"x": (2, 3)}, "x: expected a square, got [2, 3]"),
        (WHOLE, "32 elements: x", {"x": (4, 4)}, "x: expected 32 elements, got 16"),
        (ROWS, "… rows (as many as x): y", {"x": (2,), "y": (2, 5)}, None),
        (ROWS, "… rows (as many as x): y", {"x": (2,), "y": (3,)}, "y: expected 2 rows (as many as x), got 3"),
        (ROWS, "… rows (as many as x): y", {"x": (2,), "y": None}, None),
        (LONGER, "shape … or a longer one: y", {"x": (2,), "y": (3,)}, None),
        (
            LONGER,
            "shape … or a longer one: y",
            {"x": (2,), "y": (1,)},
            "y: expected shape [2] or a longer one, got [1]",
        ),
        (TYPES, "data type …: y", {"x": (2,), "y": (2,)}, None),
        (MODES, "…: mode", {"mode": "c"}, "mode: expected 'a' or 'b', got 'c'"),
    ],
)
def test_argument_values_in_errors_are_readable(
    check: Check, title: str, arguments: Arguments, text: str | None
) -> None:
    """A tensor is given by its shape."""
    described = {
        name: Tensor(D.FLOAT, value) if isinstance(value, tuple) else value for name, value in arguments.items()
    }
    assert check.name == title
    assert check.violation(Call(CASES[0].operator, described, Product.ATLAS_A2)) == text


def test_types_and_formats_are_worded_by_their_names_in_c() -> None:
    tensors = {"x": Tensor(D.FLOAT, (2,)), "y": Tensor(D.INT8, (2,), format=Format.FORMAT_NCHW)}
    call = Call(CASES[0].operator, tensors, Product.ATLAS_A2)
    formats = fits("format {}", lambda call, got: (call["x"].format, got.format), "y")
    assert TYPES.violation(call) == "y: expected data type ACL_BF16 or ACL_FLOAT, got ACL_INT8"
    assert formats.violation(call) == "y: expected format ACL_FORMAT_ND, got ACL_FORMAT_NCHW"
