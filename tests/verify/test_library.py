"""Operators that a library computes: golden values are PyTorch's in float64, own results pass, wrong ones fail."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn.core.dtypes import DataType as D
from aclnn.core.operator import Call, Library, Operator
from aclnn.core.products import set_soc_name
from aclnn.core.tensor import Scalar, Tensor
from aclnn.execution.executor import prepare
from aclnn.verify import check
from aclnn.verify.cases.arguments import VERIFIABLE
from aclnn.verify.goldens.library import computed
from aclnn.verify.number_formats import ALL_FORMATS
from tests.helpers.calls import run
from tests.helpers.library import LibraryTests, Placed, Subject, product_of, to_torch

SHORT = (D.FLOAT, D.FLOAT16, D.BF16)
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "operators" / "library"
#: The operators that can be verified, each with its subject.
SUBJECTS = [
    pytest.param(classes.subject, operator, id=operator.name)
    for path in sorted(FOLDER.rglob("test_*.py"))
    for classes in vars(import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))).values()
    if isinstance(classes, type) and issubclass(classes, LibraryTests) and hasattr(classes, "subject")
    for operator in classes.subject.operators
    if operator.name in VERIFIABLE and operator.name not in classes.subject.elsewhere
]


def filled(subject: Subject, operator: Operator, dtype: D) -> tuple[dict[str, Any], dict[str, Placed]]:
    arguments, placed = subject.filled(operator, dtype, "contiguous", np.random.default_rng(7))
    return {p.name: arguments[p.name] for p in operator.parameters}, placed


def verified(
    subject: Subject, operator: Operator, arguments: dict[str, Any], dtypes: Collection[str] = ALL_FORMATS
) -> list[str]:
    """Return the outputs of a data type that can be verified."""
    given = {p.name: arguments[p.name] for p in operator.outputs if p.name not in subject.left}
    certain = {p.name for p in operator.outputs if p.index_of is not None}
    return [
        name
        for name, tensor in given.items()
        if tensor is not None and tensor.dtype.numpy_name in dtypes and name in certain
    ]


def has_no_golden(call: Call) -> bool:
    """Return True if the data give the size, parts or all stay unwritten, or a private format is not told by a file."""
    work = call.operator.work(call)
    assert isinstance(work, Library)
    kept = {p.name for p in call.operator.outputs if not p.is_read} & {*work.inputs}
    return (
        work.sized_by_result
        or bool(kept)
        or not work.outputs
        or any(tensor.format.private for _, tensor in call.tensors())
    )


def as_wrong(values: Any) -> Any:
    """Return values of which none is right, or within a unit of the last place."""
    if ALL_FORMATS[values.dtype.name].digits < 8 or values.dtype.kind in "iub":
        bits = np.array(values, order="C").view(f"u{values.dtype.itemsize}")
        return (bits ^ (1 if values.dtype == bool else 0x20)).view(values.dtype)
    return (np.nan_to_num(values.astype(np.float64)) * 1.5 + 1.0).astype(values.dtype)


@pytest.mark.parametrize(("subject", "operator"), SUBJECTS)
def test_golden_values_are_pytorchs_of_float64(subject: Subject, operator: Operator) -> None:
    dtype = subject.usual(operator)
    arguments, placed = filled(subject, operator, dtype)
    outputs = verified(subject, operator, arguments, [one.numpy_name for one in SHORT])
    if not outputs:
        pytest.skip(f"no output of {dtype.c_name} can be verified")
    call = Call(operator, arguments, product_of(operator))
    if has_no_golden(call):
        pytest.skip("the valid call has room for more elements than the data give")
    inputs = {p.python_name: placed[p.name].view for p in operator.parameters if p.is_read and p.name in placed}
    wide: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            array = placed[name].view
            wide[name] = to_torch(array.astype(np.float64) if value.dtype in SHORT else array)
        else:
            wide[name] = value.value.item() if isinstance(value, Scalar) else value
    results = subject.references[operator.name](wide)
    results = results if isinstance(results, (tuple, list)) else (results,)
    names = [p.name for p in operator.outputs if p.name not in subject.left]
    expected = dict(zip(names, results, strict=True))
    golden = computed(call, inputs)
    for name in outputs:
        found = golden[name].reshape(-1)
        exact = expected[name].double().numpy().reshape(-1)
        np.testing.assert_allclose(found, exact, 1e-12, 1e-12 * np.abs(exact[np.isfinite(exact)]).max(initial=0.0))


@pytest.mark.parametrize(("subject", "operator"), SUBJECTS)
def test_own_results_pass_and_wrong_ones_fail(subject: Subject, operator: Operator) -> None:
    product = product_of(operator)
    set_soc_name(product.example)
    dtypes = subject.dtypes_of(operator)
    for dtype in [one for one in SHORT if one in dtypes] or dtypes[:1]:
        arguments, placed = filled(subject, operator, dtype)
        outputs = verified(subject, operator, arguments)
        if not outputs:
            continue
        if has_no_golden(Call(operator, arguments, product)):
            continue
        inputs = {p.name: placed[p.name].view.copy() for p in operator.parameters if p.is_read and p.name in placed}
        attributes = {p.name: arguments[p.name] for p in operator.attributes}
        run(prepare(operator, arguments, product))
        results = {p.name: placed[p.name].view for p in operator.outputs if p.name in placed}
        report = check(operator, inputs, results, **attributes)
        assert report.passed, report.brief()
        for name in outputs:
            wrong = as_wrong(results[name])
            assert not check(operator, inputs, {**results, name: wrong}, **attributes).passed or not wrong.size
