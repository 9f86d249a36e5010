"""User-defined operators: what decorators declare, and what ``ACLNN_OPERATORS`` makes of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aclnn import AclnnError
from aclnn.core.operator import Operator
from aclnn.core.products import set_soc_name
from aclnn.custom import array_function, elementwise
from aclnn.execution import arrays
from aclnn.formula import exp, where
from tests.helpers.toolkit_support import needs_toolkit

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "custom"


@elementwise("y", dtypes=("float16", "float32"))
def leaky(x, negative_slope: float = 0.01, shift: int = 0):
    """x, and below 0 a part of it."""
    return where(x > 0.0, x, negative_slope * x) + shift


@elementwise(("total", "ratio"), dtypes=("float32", "bfloat16", ("float16", "float16", "float32", "float32")))
def both(x, y):
    return x + y, exp(x - y)


def test_a_formula_is_computed_in_float64_and_rounded_once() -> None:
    x = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float16)
    wide = x.astype(np.float64)
    expected = np.where(wide > 0, wide, float(np.float32(0.3)) * wide) + 2
    np.testing.assert_array_equal(leaky(x, 0.3, shift=2), expected.astype(np.float16))


def test_outputs_are_given_broadcast_and_of_their_own_types() -> None:
    x, y = np.array([1, 2], np.float16), np.array([[0], [1], [2]], np.float16)
    total, out = both(x, y, out=(None, ratio := np.full((3, 2), np.nan, np.float32)))
    assert out is ratio
    assert total.dtype == np.float32
    np.testing.assert_array_equal(total, x.astype(np.float32) + y)
    np.testing.assert_array_equal(ratio, np.exp(x.astype(np.float64) - y).astype(np.float32))


def test_the_declaration_is_that_of_a_generated_interface() -> None:
    operator: Operator = leaky.operator  # type: ignore[attr-defined]
    assert operator.function == "aclnnLeaky"
    assert operator.header == "aclnn_leaky.h"
    assert [parameter.declaration for parameter in operator.parameters] == [
        *("const aclTensor *x", "double negativeSlope", "int64_t shift", "const aclTensor *out"),
    ]
    assert [parameter.name for parameter in both.operator.outputs] == ["totalOut", "ratioOut"]  # type: ignore[attr-defined]
    assert operator.summary == "x, and below 0 a part of it."


X = np.ones(3, np.float32)
REJECTED: dict[str, tuple[Callable[[], Any], int, str]] = {
    "null": (lambda: leaky(None), 161001, "x: expected an array, got None"),
    "type": (lambda: leaky(X.astype(np.float64)), 161002, "x: expected data type ACL_FLOAT or ACL_FLOAT16"),
    "types": (lambda: both(X, X.astype(np.float16)), 161002, "y: expected data type ACL_FLOAT with x"),
    "shapes": (lambda: both(X, X[:2]), 561002, "expected shapes that both takes (they do not broadcast)"),
    "output": (lambda: leaky(X, out=np.ones(4, np.float32)), 561002, "out: expected shape [3], got [4]"),
    "dimensions": (lambda: leaky(np.ones((1,) * 9, np.float32)), 561002, "x: expected at most 8 dimensions"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_errors_have_codes_of_generated_interfaces(name: str) -> None:
    call, code, text = REJECTED[name]
    with pytest.raises(AclnnError) as rejected:
        call()
    assert rejected.value.code == code
    assert text in str(rejected.value)


def test_bfloat16_is_rejected_if_unsupported() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = X.astype(ml_dtypes.bfloat16)
    assert both(x, x)[0].dtype == x.dtype
    set_soc_name("Ascend310P3")
    with pytest.raises(AclnnError) as rejected:
        both(x, x)
    assert rejected.value.code == 161002


def test_nothing_is_done_for_empty_tensors() -> None:
    assert leaky(np.ones((0, 3), np.float32)).shape == (0, 3)


def _tensor_after_attribute(scale: float, x: Any) -> Any:
    return scale * x


def _text(x: Any, mode: str) -> Any:
    return x


def _optional(x: Any, y: Any = None) -> Any:
    return x


def _any_number(*x: Any) -> Any:
    return x[0]


@pytest.mark.parametrize("formula", [_tensor_after_attribute, _text, _optional, _any_number], ids=lambda f: f.__name__)
def test_a_formula_with_other_parameters_is_rejected(formula: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"{formula.__name__}: expected .*, got "):
        elementwise()(formula)


@pytest.mark.parametrize("dtypes", [("float31",), (("float32",),)])
def test_nonexistent_data_types_are_rejected(dtypes: Any) -> None:
    with pytest.raises(TypeError, match=r"f: dtypes: expected one of float32, .* or one each for x, y and out, got"):

        @array_function(dtypes=dtypes)
        def f(x: Any, y: Any) -> Any:
            return x @ y


def _condition(x: Any) -> Any:
    return x > 0.0


def _two(x: Any) -> Any:
    return x, x


def _no_tensor(scale: float) -> Any:
    return 2.0 * scale


def _branch(x: Any) -> Any:
    return x if x > 0.0 else 0.0


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        *((each, "expected a formula of tensors with numbers for out") for each in (_condition, _two, _no_tensor)),
        (_branch, "expected where"),
    ],
)
def test_a_formula_with_other_results_is_rejected(formula: Callable[..., Any], text: str) -> None:
    """Wrong results are an error of the declaration, not an internal error of the first call."""
    with pytest.raises(TypeError, match=f"{formula.__name__}: {text}"):
        elementwise()(formula)


@pytest.mark.parametrize("dtypes", [("int32",), (("float32", "bool"),)])
def test_a_formula_with_integers_as_results_is_rejected(dtypes: Any) -> None:
    with pytest.raises(TypeError, match=r"f: dtypes: expected outputs of a formula in float32, .* got"):

        @elementwise(dtypes=dtypes)
        def f(x: Any) -> Any:
            return x


def test_functions_of_arrays_have_integers() -> None:
    @array_function("index", dtypes=(("float32", "int64"),), shapes=lambda x, dim: x[:dim] + x[dim + 1 :])
    def arg_max_custom(x: Any, dim: int) -> Any:
        return np.argmax(x, dim)

    x = np.array([[1, 3, 2], [9, 8, 7]], np.float32)
    np.testing.assert_array_equal(arrays.call(arg_max_custom, (x,), (1,), (None,)), [1, 0])


def with_operators(files: str, *command: str | Path, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"ACLNN_OPERATORS": files, "PATH": path} | env
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


_PROGRAM = """
import numpy as np
from aclnn import cann
from aclnn.operators import BY_NAME
from aclnn.operators.registry import C_OPERATORS

assert "leaky_relu_custom" in BY_NAME and "matmul_leaky_relu_custom" not in BY_NAME
assert cann.aclInit(None) == cann.aclrtSetDevice(0) == 0

def tensor(array, dtype):
    status, memory = cann.aclrtMalloc(max(array.nbytes, 1), 0)
    assert status == cann.aclrtMemcpy(memory, array.nbytes, array.ctypes.data, array.nbytes, 1) == 0
    return memory, cann.aclCreateTensor(array.shape, array.ndim, dtype, None, 0, 2, array.shape, array.ndim, memory)

random = np.random.default_rng(0)
a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((5, 7), (7, 3)))
bias, c = random.standard_normal(3).astype(np.float32), np.zeros((5, 3), np.float32)
(_, ta), (_, tb), (_, tbias), (out, tc) = tensor(a, 1), tensor(b, 1), tensor(bias, 0), tensor(c, 0)
for given in (tbias, None):
    status, size, executor = cann.aclnnMatmulLeakyReluCustomGetWorkspaceSize(ta, tb, given, 0.5, tc)
    assert status == cann.aclnnMatmulLeakyReluCustom(0, size, executor, None) == 0, cann.aclGetRecentErrMsg()
    assert cann.aclrtMemcpy(c.ctypes.data, c.nbytes, out, c.nbytes, 2) == 0
    expected = a.astype(np.float32) @ b.astype(np.float32) + (bias if given else 0)
    np.testing.assert_allclose(c, np.where(expected > 0, expected, expected / 2), rtol=1e-5, atol=1e-6)
print(cann.aclnnMatmulLeakyReluCustomGetWorkspaceSize(ta, tb, None, 0.5, ta)[0], cann.aclGetRecentErrMsg())
print(cann.aclnnMatmulLeakyReluCustomGetWorkspaceSize(tb, tb, None, 0.5, tc)[0], cann.aclGetRecentErrMsg())
"""


def test_functions_of_arrays_run_under_their_c_names() -> None:
    done = with_operators(str(EXAMPLE / "operators.py"), sys.executable, "-c", _PROGRAM)
    assert done.returncode == 0, done.stderr
    types, shapes = done.stdout.splitlines()
    assert "161002 aclnnMatmulLeakyReluCustom: out: expected data type ACL_FLOAT with a and b, got" in types
    assert "561002 aclnnMatmulLeakyReluCustom: out: expected shape [7, 3], got [5, 3]" in shapes


def test_pytorch_has_formulas() -> None:
    pytest.importorskip("torch")
    program = (
        "import torch, aclnn.torch\nprint(torch.ops.aclnn.leaky_relu_custom(torch.tensor([-4., 2.]), 0.25).tolist())"
    )
    done = with_operators(str(EXAMPLE / "operators.py"), sys.executable, "-c", program)
    assert done.stdout == "[-1.0, 2.0]\n", done.stderr


def test_a_verdict_by_a_function_of_arrays(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(shape).astype(np.float16) for shape in ((5, 7), (7, 3)))
    exact = a.astype(np.float64) @ b
    for name, array in (("a", a), ("b", b), ("c", np.where(exact > 0, exact, 0.5 * exact)), ("wrong", exact)):
        np.save(tmp_path / name, array if array.dtype == np.float16 else array.astype(np.float32))
    verify = (
        "aclnn",
        "verify",
        "matmul_leaky_relu_custom",
        "a=a.npy",
        "b=b.npy",
        "--negative-slope",
        "0.5",
        "--actual",
    )
    for actual, code, word in (("c.npy", 0, "PASS"), ("wrong.npy", 1, "FAIL")):
        done = with_operators(str(EXAMPLE / "operators.py"), *verify, actual, cwd=tmp_path)
        assert (done.returncode, done.stdout.split()[0]) == (code, word), done.stdout + done.stderr


_DECLARED = """
from aclnn.core.checks import present
from aclnn.core.operator import Elementwise, Kind, Operator, Parameter
from aclnn.core.products import Product
from aclnn.core.dtypes import DataType
from aclnn.execution import arrays

TWICE = Operator(
    "twice", "Twice a tensor.", "y = 2 * x",
    (Parameter("x", "x", Kind.INPUT, "x"), Parameter("y", "y", Kind.OUTPUT, "y")),
    dict.fromkeys(Product, frozenset({DataType.FLOAT})), (present("x", "y"),),
    lambda call: Elementwise(lambda x: 2.0 * x, ("x",), ("y",)),
    lambda call: {"y": (call["x"].dtype, call["x"].shape)},
)

def twice(x, out=None):
    return arrays.call(TWICE, (x,), (), (out,))
"""


def test_several_files_and_whole_declarations(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(_DECLARED)
    files = os.pathsep.join(("twice.py", str(EXAMPLE / "operators.py")))
    np.save(tmp_path / "x", X)
    done = with_operators(files, "aclnn", "run", "twice", "x=x.npy", "--out", "y.npy", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), 2 * X)
    assert "leaky_relu_custom" in with_operators(files, "aclnn", "info", "leaky_relu_custom", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "expected files that can be run, got '/"),
        (
            "from aclnn.custom import elementwise\n@elementwise()\ndef silu(x): return x\n",
            "a new operator, got aclnnSilu, which exists",
        ),
        ("1 / 0", 'own.py", line 1, in <module>'),
    ],
)
def test_a_file_that_cannot_be_used_is_named(text: str | None, expected: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "own.py").write_text(text)
    done = with_operators("own.py", sys.executable, "-c", "import aclnn", cwd=tmp_path)
    assert done.returncode == 1
    assert expected in done.stderr
    assert "own.py" in done.stderr


@pytest.mark.slow
@needs_toolkit
def test_a_program_finds_the_package_and_runs_without_the_variable(tmp_path: Path) -> None:
    root, files = tmp_path / "toolkit", str(EXAMPLE / "operators.py")
    done = with_operators(files, "aclnn", "toolkit", "build", root)
    assert done.returncode == 0, done.stderr
    package = root / "opp" / "vendors" / "customize" / "op_api"
    folders = [f"-I{root}/include", f"-I{package}/include", f"-L{package}/lib", f"-L{root}/lib64"]
    libraries = ["-lcust_opapi", "-lnnopbase", "-lascendcl", f"-Wl,-rpath,{root}/lib64"]
    program = tmp_path / "program"
    subprocess.run(["c++", EXAMPLE / "leaky_relu_custom.cpp", *folders, "-o", program, *libraries], check=True)
    expected = "-8.0 -> -2.00\n-1.0 -> -0.25\n 0.0 ->  0.00\n 1.0 ->  1.00\n 8.0 ->  8.00\n"
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == expected
