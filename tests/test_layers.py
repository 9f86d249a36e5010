"""The sources that name a compiled kernel's file in the cache; import layers are import-linter's (pyproject.toml)."""

from __future__ import annotations

import grimp

from aclnn.kernels.cpu.cache import sources

_NEVER_COMPILED_IN = {"aclnn.core.tensor", "aclnn.support"}


def test_files_of_compiled_kernels_are_named_after_all_that_is_compiled_in() -> None:
    """Changes of LayerNorm's limits, too, must give kernels new names in the cache."""
    graph = grimp.build_graph("aclnn", exclude_type_checking_imports=True)
    stamped = {".".join(path.with_suffix("").parts[path.parts.index("aclnn") :]) for path in sources()}
    stamped = {name.removesuffix(".__init__") for name in stamped}
    kernels = {"aclnn.kernels.cpu"} | graph.find_descendants("aclnn.kernels.cpu")
    assert len(kernels) > 20
    assert kernels <= stamped
    for kernel in kernels:
        for imported in graph.find_modules_directly_imported_by(kernel) - stamped:
            assert imported in _NEVER_COMPILED_IN or imported.startswith("aclnn.support."), (
                f"{kernel} imports {imported}"
            )
