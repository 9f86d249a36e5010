"""Public names and types, as type checkers, editors and ``help`` see them."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import aclnn
from aclnn import cann, capi
from aclnn.core.operator import Operator
from aclnn.operators import OPERATORS, function_of

ROOT = Path(__file__).parents[1]
README = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

GOOD = """\
import numpy as np

import aclnn
from aclnn import *
from aclnn.cann import *

x = np.zeros(3, np.float32)
print(aclnn.silu_backward(x, x), aclnn.soc_name(), inplace_hardswish(x), AclnnError(1, "").code)
status: int
memory: int
status, memory = aclrtMalloc(64, ACL_MEM_MALLOC_HUGE_FIRST)
kind: aclrtMemcpyKind = ACL_MEMCPY_HOST_TO_DEVICE
status = aclrtMemcpy(memory, 64, 0, 64, kind) + ACL_ERROR_INVALID_PARAM
tensor: int = aclCreateTensor([3], 1, ACL_FLOAT, None, 0, ACL_FORMAT_ND, [3], 1, memory)
dims: list[int]
status, dims, count = aclGetViewShape(tensor)
_, size, executor = aclnnGeluBackwardV2GetWorkspaceSize(tensor, None, "tanh", tensor)
why: str | None = aclGetRecentErrMsg()
result: np.ndarray = aclnn.gelu_backward_v2(x, x, "tanh", out=None)
dx, dw, db = aclnn.layer_norm_backward(x, x, (3,), x, x, out=(x, None, None))
aclnn.elu(x, np.float32(2), 1, 0.5)
"""

BAD = """\
import aclnn
import numpy as np
from aclnn.cann import *

x = np.zeros(3, np.float32)
aclnn.silu_forward
aclnn.silu_backward(1.0, 2.0)
aclnn.gelu_backward_v2(x, x, "tan")
aclnn.silu(x, out=3)
aclrtMalloc("64")
status: int = aclrtMalloc(64)
aclrtMallok(64)
ACL_MEM_MALLOC_HUGE_LAST
"""


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """Make a folder with programs that use an installed aclnn."""
    for number, block in enumerate(README):
        (tmp_path / f"readme_{number}.py").write_text(block)
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


def lines_complained_of(checker: str, folder: Path, *options: str) -> set[str]:
    """Return ``file:line`` of every error that a type checker reports for a folder's programs."""
    if importlib.util.find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    command = [sys.executable, "-m", checker, *options, "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return set(re.findall(r"(\w+\.py:\d+)(?::\d+)*(?:: | - )error", done.stdout))


ALL_BAD_LINES = {f"bad.py:{number}" for number in range(6, 14)}


@pytest.mark.slow
def test_mypy_knew_none_of_the_names(client: Path) -> None:
    # Reading torch takes it half a minute.
    (client / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-torch.*]\nfollow_imports = skip\n")
    assert lines_complained_of("mypy", client) == ALL_BAD_LINES


@pytest.mark.long
def test_pyright_knew_none_of_the_names(client: Path) -> None:
    options = ["--level", "error", "--pythonpath", sys.executable]
    assert lines_complained_of("basedpyright", client, *options) == ALL_BAD_LINES


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_signatures_of_functions_are_typed_for_users(operator: Operator) -> None:
    signature = inspect.signature(function_of(operator))
    types = [signature.return_annotation, *(parameter.annotation for parameter in signature.parameters.values())]
    assert inspect.Parameter.empty not in types
    assert [found for found in types if re.search(r"\bAny\b", str(found))] == []


def test_a_star_imported_three_names() -> None:
    names: dict[str, object] = {}
    exec("from aclnn import *", names)
    assert all(names[operator.name] is getattr(aclnn, operator.name) for operator in OPERATORS)
    assert set(aclnn.__all__) == {operator.name for operator in OPERATORS} | {
        "AclnnError", "__version__", "set_soc_name", "soc_name",
    }  # fmt: skip


def test_the_stub_has_all_names() -> None:
    stub = ast.parse(Path(capi.__file__).with_suffix(".pyi").read_text())
    declared = {
        name
        for node in stub.body
        for name in (
            [node.name]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
            else [target.id for target in ast.walk(node) if isinstance(target, ast.Name)][:1]
        )
    }
    assert declared == set(cann.__all__)


def test_help_said_an_integer_where_a_tuple_comes() -> None:
    assert str(inspect.signature(cann.aclrtMalloc)) == "(size: int, policy: int = 0) -> tuple[int, int]"
    assert get_type_hints(cann.aclrtMalloc)["return"] == tuple[int, int]
    assert "Returns ``(ret, devPtr)``." in cann.aclrtMalloc.__doc__
    assert "-> tuple[int, int, int]" in str(inspect.signature(cann.aclnnSiluBackwardGetWorkspaceSize))


@pytest.mark.parametrize("name", [name for name in cann.__all__ if inspect.isfunction(getattr(cann, name))])
def test_signatures_of_c_functions_are_complete(name: str) -> None:
    signature = inspect.signature(getattr(cann, name))
    types = [signature.return_annotation, *(parameter.annotation for parameter in signature.parameters.values())]
    assert inspect.Parameter.empty not in types
