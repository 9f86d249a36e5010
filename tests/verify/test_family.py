"""Every operator of the family is verified from its declaration and formula: right results pass, faulty ones fail."""

import numpy as np
import pytest

from aclnn.core.products import set_soc_name
from aclnn.verify import check
from aclnn.verify.cases.arguments import VERIFIABLE, operator_named
from aclnn.verify.goldens.golden import golden
from aclnn.verify.number_formats import FORMATS
from tests.cases import CASES
from tests.cases.table import changed
from tests.helpers.calls import compiles_long

ROWS, COLUMNS = (2, 8), (48,)
FAMILY = [
    pytest.param(
        case,
        dtype,
        id=f"{case.name}-{dtype}",
        marks=[pytest.mark.long] if dtype != "float32" and compiles_long(case.operator) else [],
    )
    for case in CASES
    if case.name in VERIFIABLE
    for dtype in FORMATS
    if FORMATS[dtype].dtype in case.dtypes[case.product]
]


def called(case, dtype, seed=1):
    """Return inputs, attributes and results of a call on random numbers, outputs in Python's order."""
    set_soc_name(case.product.example)
    arguments = changed(case.call(FORMATS[dtype].dtype), case.shaped(ROWS, COLUMNS))
    rng = np.random.default_rng(seed)
    kind = FORMATS[dtype].dtype.numpy
    verified = operator_named(case.name)
    inputs = {}
    for parameter in verified.inputs:
        given = arguments.get(parameter.name, next(iter(arguments.values())))
        if given is not None:
            values = rng.normal(size=given.shape)
            inputs[parameter.python_name] = (abs(values) + 0.5 if parameter.python_name == "rstd" else values).astype(
                given.dtype.numpy if parameter.name in arguments else kind
            )
    attributes = {p.python_name: arguments[p.name] for p in verified.attributes}
    if case.name == verified.name:
        results = case.python(**inputs, **attributes)
    else:  # in place
        copies = [value.copy() for value in inputs.values()]
        results = case.python(*copies, **attributes)
        if case.name == "inplace_add_rms_norm":
            results = copies[0], results, copies[1]
    results = results if isinstance(results, tuple) else (results,)
    names = [p.python_name for p in verified.outputs]
    return inputs, attributes, dict(zip(names, results, strict=True))


@pytest.mark.parametrize(("case", "dtype"), FAMILY)
def test_right_results_pass_and_faults_in_any_output_fail(case, dtype):
    inputs, attributes, results = called(case, dtype)
    report = check(case.name, inputs, results, **attributes)
    assert report.passed, report.brief()
    (verified,) = report.data["cases"]
    assert [output["name"] for output in verified["outputs"]] == list(results)
    if "norm" not in case.name and case.name != "log_softmax_backward":  # where terms cancel
        assert all(output["worst"] is None or output["worst"]["ulp"] <= 2.5 for output in verified["outputs"])
    for name, right in results.items() if dtype == "float32" else ():
        for fault in (lambda values: values * values.dtype.type(1.5), lambda values: np.full_like(values, np.nan)):
            report = check(case.name, inputs, {**results, name: fault(right)}, **attributes)
            verdicts = {output["name"]: output["verdict"] for output in report.data["cases"][0]["outputs"]}
            assert verdicts == {**dict.fromkeys(results, "pass"), name: "fail"}


def test_an_output_that_the_call_leaves_alone_is_not_verified():
    rng = np.random.default_rng(2)
    inputs = {name: rng.normal(size=(3, 40)).astype(np.float32) for name in ("x1", "x2")}
    inputs |= {name: rng.normal(size=40).astype(np.float32) for name in ("weight", "bias")}
    found = golden("add_layer_norm", inputs, additional_output=False)
    assert list(found) == ["out", "mean", "rstd"]
    results = {name: one.rounded for name, one in found.items()} | {"x": np.full((3, 40), np.nan, np.float32)}
    report = check("add_layer_norm", inputs, results, additional_output=False)
    assert report.passed
    assert [output["name"] for output in report.data["cases"][0]["outputs"]] == list(found)
    assert not check("add_layer_norm", inputs, results).passed
