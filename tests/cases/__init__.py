"""THE TABLE: one row per operator, from the operators' documents. Every test is parametrised over it.

Each module has the rows of a function and its gradient; ``table`` says what a row consists of.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from tests.cases.table import Case

_MODULES = [import_module(f"tests.cases.{module.name}") for module in pkgutil.iter_modules(__path__)]
CASES = tuple(value for module in _MODULES for value in vars(module).values() if isinstance(value, Case))
CASE_BY_NAME = {case.name: case for case in CASES}
