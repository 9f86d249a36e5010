"""The documents' worked examples as a C++ program for each product, generated from the table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aclnn.core.dtypes import DataType
from aclnn.core.operator import Call, Kind
from aclnn.core.products import Product
from aclnn.core.tensor import Scalar, Tensor
from tests import cases
from tests.cases.table import FLOATS, Case, Example, T
from tests.helpers.toolkit_support import RUN_SECONDS, SOURCES, Compile, needs_toolkit, run

pytestmark = [needs_toolkit, pytest.mark.toolkit]

#: How an attribute is written in C++, and a type of arrays with its elements'.
LITERALS = {
    Kind.INT64: lambda value: f"INT64_C({value})",
    Kind.INT32: str,
    Kind.BOOL: lambda value: "true" if value else "false",
    Kind.DOUBLE: repr,
    Kind.FLOAT: lambda value: f"{value!r}f",
    Kind.STRING: lambda value: f'const_cast<char*>("{value}")',
}
ARRAYS = {Kind.INT_ARRAY: ("aclIntArray", "int64_t"), Kind.BOOL_ARRAY: ("aclBoolArray", "bool")}


def expressible(case: Case) -> list[Example]:
    """Return the examples whose tensors can be expressed in C++ here."""
    return [
        example
        for example in case.examples
        if all(given is None or given[0].dtype in (*FLOATS, DataType.INT64) for given in example.inputs.values())
    ]


BY_PRODUCT = {
    product: [row for row in cases.CASES if row.product is product and expressible(row)]
    for product in dict.fromkeys(row.product for row in cases.CASES if expressible(row))
}


def outputs_of(case: Case, example: Example) -> dict[str, Any]:
    """Return data types and shapes of an example's outputs."""
    arguments: dict[str, Any] = dict.fromkeys(p.name for p in case.operator.parameters)
    for name, given in example.inputs.items():
        arguments[name] = None if given is None else Tensor(given[0].dtype, given[0].shape)
    return dict(case.operator.infer(Call(case.operator, arguments | dict(example.attributes), Product.ATLAS_A2)))


def tensor(name: str, description: T, values: list[float]) -> str:
    shape, numbers = (", ".join(map(str, sequence)) for sequence in (description.shape, map(float, values)))
    return (
        f"Tensor {name}({description.dtype.c_name}, {{Shape{{{shape}}}, contiguous(Shape{{{shape}}})}}, {{{numbers}}});"
    )


def block(case: Case, example: Example) -> Iterator[str]:
    """Return the statements of one example, in braces."""
    yield "{"
    given: dict[str, str] = {}
    outputs = outputs_of(case, example)
    for parameter in case.operator.parameters:
        name = given[parameter.name] = parameter.name + "_"
        if parameter.kind is Kind.OUTPUT:
            dtype, shape = outputs[parameter.name]
            yield tensor(name, T(dtype, shape), [0.0] * math.prod(shape))  # rows that are not computed stay so
            given[parameter.name] = f"{name}.handle()"
        elif parameter.kind is Kind.INPUT:
            value = example.inputs[parameter.name]
            if value is not None:
                yield tensor(name, *value)
            given[parameter.name] = "nullptr" if value is None else f"{name}.handle()"
        elif parameter.kind is Kind.SCALAR:
            attribute = example.attributes[parameter.name]
            number = attribute.value if isinstance(attribute, Scalar) else attribute
            yield f"double {name}value = {float(number)!r};"
            yield f"aclScalar* {name} = aclCreateScalar(&{name}value, ACL_DOUBLE);"
        elif parameter.kind in ARRAYS:
            (array, element), values = ARRAYS[parameter.kind], example.attributes[parameter.name]
            yield f"const {element} {name}values[] = {{{', '.join(str(int(value)) for value in values)}}};"
            yield f"{array}* {name} = {array.replace('acl', 'aclCreate')}({name}values, {len(values)});"
        else:
            given[parameter.name] = LITERALS[parameter.kind](example.attributes[parameter.name])
    function = case.operator.function
    yield f'compute("{case.name}", stream, [&](uint64_t* size, aclOpExecutor** executor) {{'
    yield f"return {function}GetWorkspaceSize({', '.join(given.values())}, size, executor); }}, {function});"
    for name in written(case, example):
        yield f'print("{case.name} {name}", {name}_.fetch("{name}"));'
    yield "}"


def written(case: Case, example: Example) -> list[str]:
    """Return the outputs and updated inputs whose numbers the document prints."""
    return [p.name for p in case.operator.parameters if p.name in example.printed]


def program(rows: list[Case]) -> str:
    headers = sorted({case.operator.header for case in rows})
    lines = [
        '#include "device.hpp"',
        *(f'#include "aclnnop/{header}"' for header in headers),
        "static void print(const char* name, const std::vector<double>& values) {",
        "std::printf(\"%s\", name);",
        "for (double value : values) { std::printf(\" %f\", value); }",
        'std::printf("\\n"); }',
        *(line for number, case in enumerate(rows) for line in function(f"example{number}", case)),
        "int main() {",
        'aclrtStream stream = nullptr; ok(aclInit(nullptr), "aclInit"); ok(aclrtSetDevice(0), "device");',
        'ok(aclrtCreateStream(&stream), "stream");',
        *(f"example{number}(stream);" for number, _ in enumerate(rows)),
        'ok(aclrtDestroyStream(stream), "stream"); ok(aclrtResetDevice(0), "device"); ok(aclFinalize(), "end"); }',
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def function(name: str, case: Case) -> Iterator[str]:
    """Return a C++ function that computes the examples of a case."""
    yield f"static void {name}(aclrtStream stream) {{"
    for example in expressible(case):
        yield from block(case, example)
    yield "}"


@pytest.mark.slow
@pytest.mark.parametrize("product", BY_PRODUCT, ids=lambda product: product.name)
def test_worked_examples_run_from_cpp(compiled: Compile, tmp_path: Path, product: Product) -> None:
    rows = BY_PRODUCT[product]
    source = tmp_path / "examples.cpp"
    source.write_text(program(rows))
    executable = compiled(source, f"-I{SOURCES}", "-Wall", "-Wextra", "-Werror", "-O0", "-g0")
    # It may have to compile the kernels of all operators first.
    done = run(executable, env={"ACLNN_SOC_NAME": product.example}, timeout_s=10 * RUN_SECONDS)
    printed = [
        f"{case.name} {name} {example.printed[name]}"
        for case in rows
        for example in expressible(case)
        for name in written(case, example)
    ]
    assert done.stdout.splitlines() == printed


def test_no_operators_example_is_left_out() -> None:
    """Each operator has an example, except GeluBackward, whose gradient is int32."""
    called = {case.name for rows in BY_PRODUCT.values() for case in rows if expressible(case) == list(case.examples)}
    assert {case.name for case in cases.CASES if case.examples} - called == {"gelu_backward"}
