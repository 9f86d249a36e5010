"""Who may import whom: imports go downwards only, without circles, and kernels and operators keep to their own."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import aclnn
from aclnn.kernels.cpu.cache import sources

SOURCE = Path(aclnn.__file__).parent

# From the bottom up; a part may import its own modules and those of the layers below it. The engine stands twice:
# arrays is how Python functions enter the executor.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("version", "extras", "settings", "control_group", "trust", "replacing", "status", "handles", "formula"),
    ("products", "dtypes"),
    ("tensor", "promotion"),
    ("declaration", "kernels"),
    ("rules", "dlpack"),
    ("executor", "runtime"),
    ("arrays",),
    ("files",),
    ("words",),
    ("operators",),
    ("cann", "torch_ops", "required"),
    ("console",),
    ("acl", "torch", "toolkit", "verify"),
    ("demo",),
    ("docs",),
    ("cli",),
    ("__main__",),
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

# What a part may import beyond its rank's say: other parts of aclnn, and other packages (None: any).
STANDARD = frozenset(sys.stdlib_module_names)
ONLY: dict[str, tuple[frozenset[str], frozenset[str] | None]] = {
    "kernels": (
        frozenset(
            {"kernels", "formula", "tensor", "dtypes", "extras", "settings", "control_group", "trust", "replacing"}
        ),
        None,
    ),
    "operators": (
        frozenset(
            {"operators", "formula", "declaration", "rules", "arrays", "dtypes", "products", "promotion", "status"}
        ),
        STANDARD,
    ),
    "declaration": (frozenset({"declaration", "tensor", "dtypes", "products"}), STANDARD),
    "rules": (frozenset({"rules", "declaration", "tensor", "dtypes", "products", "promotion", "status"}), STANDARD),
    "tensor": (frozenset({"tensor", "dtypes"}), STANDARD),
    "status": (frozenset({"status"}), STANDARD),
    "formula": (frozenset({"formula"}), STANDARD),
}


def modules(source: Path = SOURCE) -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, tree: ast.Module, known: Iterable[str], is_package: bool = False) -> Iterator[str]:
    """The modules that a module imports anywhere, in functions too; only under TYPE_CHECKING does not count."""
    for node in runtime_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = name.split(".")
                parent = parent[: len(parent) - node.level + is_package]
                base = ".".join([*parent, base] if base else parent)
            # "from package import module" imports the module; the package comes with it anyway.
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else base


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        yield from runtime_nodes(child)


def part_of(module: str) -> str | None:
    """The part of aclnn that a module belongs to; None for the package's own __init__ and for other packages."""
    names = module.split(".")
    return names[1] if names[0] == "aclnn" and len(names) > 1 else None


def complaints(module: str, imported: Iterable[str]) -> list[str]:
    """What a module's imports break, one sentence each."""
    part = part_of(module)
    if part is None:
        return []
    found = []
    for name in imported:
        other = part_of(name)
        own, packages = ONLY.get(part, (None, None))
        if other is None and name.split(".")[0] == "aclnn":
            # The root package imports the operators: only what stands above them may use it.
            if RANK[part] <= RANK["operators"]:
                found.append(f"{module} imports aclnn itself")
        elif other is None:
            library = {"numpy"} if module.startswith("aclnn.operators.library.") else set()
            if packages is not None and name.split(".")[0] not in packages | library | {"__future__"}:
                found.append(f"{module} imports {name}, which {part} must not")
        elif other != part and (RANK[other] >= RANK[part] or (own is not None and other not in own)):
            found.append(f"{module} imports {name}, which is not below it")
    return found


def test_the_design_names_every_part() -> None:
    text = (Path(__file__).parents[1] / "docs" / "design.md").read_text()
    table = text[text.index("| layer |") : text.index("An operator is data")]
    assert set(re.findall(r"`(\w+)(?:/\*)?`", table)) - {"aclnn"} == set(RANK)


def test_files_of_compiled_kernels_are_named_after_all_that_is_compiled_in() -> None:
    """The limits of LayerNorm were not: a change of them left the old kernels in use."""
    known, stamped = modules(), sources()
    never_compiled_in = {"aclnn.control_group", "aclnn.tensor", "aclnn.settings", "aclnn.trust", "aclnn.replacing"}
    kernels = [name for name in known if name.startswith("aclnn.kernels.cpu")]
    assert len(kernels) > 30
    for name in kernels:
        path = known[name]
        assert path in stamped
        tree = ast.parse(path.read_text())
        for imported in imports(name, tree, known, path.name == "__init__.py"):
            if imported in known and imported not in never_compiled_in:
                assert known[imported] in stamped, f"{name} imports {imported}"


def test_every_part_has_a_layer() -> None:
    assert {part_of(name) for name in modules()} - {None} <= set(RANK)


@pytest.mark.parametrize("name", modules())
def test_imports_go_down(name: str) -> None:
    known = modules()
    path = known[name]
    imported = imports(name, ast.parse(path.read_text()), known, path.name == "__init__.py")
    assert complaints(name, imported) == []


def test_no_circles() -> None:
    known = modules()
    graph = {
        name: set(imports(name, ast.parse(path.read_text()), known, path.name == "__init__.py")) & set(known) - {name}
        for name, path in known.items()
    }
    while graph:
        leaves = {name for name, imported in graph.items() if not imported & graph.keys()}
        assert leaves, f"modules that import one another: {sorted(graph)}"
        graph = {name: imported for name, imported in graph.items() if name not in leaves}


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("aclnn.kernels.cpu.elementwise.plans", "from aclnn.operators.silu import silu_slope"),
        ("aclnn.kernels.cpu.elementwise.plans", "from aclnn import operators"),
        ("aclnn.kernels.cpu.elementwise.plans", "def plan():\n    from aclnn.rules import rule"),
        ("aclnn.kernels.cpu.elementwise.plans", "import aclnn.runtime.memory"),
        ("aclnn.kernels.cpu.elementwise.plans", "from ....operators import silu"),
        ("aclnn.kernels.cpu.elementwise.plans", "import aclnn"),
        ("aclnn.operators.silu", "import numpy as np"),
        ("aclnn.operators.silu", "from torch.nn import functional"),
        ("aclnn.operators.silu", "from aclnn.kernels import elementwise"),
        ("aclnn.operators.silu", "from aclnn.executor import prepare"),
        ("aclnn.operators.silu", "from aclnn.tensor import Layout"),
        ("aclnn.declaration", "from aclnn.status import AclnnError"),
        ("aclnn.executor", "from aclnn.arrays import view"),
        ("aclnn.executor", "from aclnn import cann"),
        ("aclnn.tensor", "from aclnn.declaration import Operator"),
        ("aclnn.runtime.memory", "from aclnn.operators import OPERATORS"),
    ],
)
def test_a_wrong_import_is_found(module: str, line: str) -> None:
    assert complaints(module, imports(module, ast.parse(line), modules()))


def test_a_right_import_is_not() -> None:
    line = "from aclnn.kernels.cpu.vector import load\nfrom aclnn.tensor import Layout\nimport numba\nimport math"
    module = "aclnn.kernels.cpu.elementwise.plans"
    assert complaints(module, imports(module, ast.parse(line), modules())) == []
