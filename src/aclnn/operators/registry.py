"""Operators with C functions, including those of ``library``, which ``import aclnn`` does not load."""

from __future__ import annotations

from aclnn.operators import CUSTOM, OPERATORS
from aclnn.operators.library import LIBRARY_OPERATORS

#: Operators with C functions.
C_OPERATORS = (*OPERATORS, *LIBRARY_OPERATORS, *(operator for operator, function in CUSTOM.values() if not function))

BY_FUNCTION = {operator.function: operator for operator in C_OPERATORS}
