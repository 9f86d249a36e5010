"""Plain operators used by programs together with activations and norms, computed by NumPy.

They have C functions, but no Python functions of arrays, for which NumPy has its own. There is a package for each
subject; a module declares related operators as its ``OPERATORS``.
"""

from __future__ import annotations

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules

from aclnn.core.operator import Operator

_PACKAGES = (
    "elementwise",
    "reduction",
    "indexing",
    "creation",
    "matrix",
    "convolution",
    "vision",
    "training",
    "attention",
    "decoding",
    "experts",
    "quantization",
    "distributed",
)


def _operators(package: str) -> tuple[str, tuple[Operator, ...]]:
    """Return a package's subject, from its docstring, and the operators of its modules, sorted by module."""
    found = import_module(f"{__name__}.{package}")
    names = sorted(module.name for module in iter_modules(found.__path__))
    modules = [import_module(f"{found.__name__}.{name}") for name in names]
    declared = chain.from_iterable(getattr(module, "OPERATORS", ()) for module in modules)
    return (found.__doc__ or "").strip().rstrip("."), tuple(declared)


SUBJECTS: dict[str, tuple[Operator, ...]] = dict(map(_operators, _PACKAGES))
"""The operators of each subject."""
LIBRARY_OPERATORS: tuple[Operator, ...] = tuple(chain.from_iterable(SUBJECTS.values()))
"""Every operator declared in these packages."""
