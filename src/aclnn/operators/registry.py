"""Every operator that has C functions, the plain ones of ``library`` included, which ``import aclnn`` does without."""

from __future__ import annotations

from aclnn.operators import CUSTOM, OPERATORS
from aclnn.operators.library import LIBRARY_OPERATORS

#: The operators that have C functions.
C_OPERATORS = (*OPERATORS, *LIBRARY_OPERATORS, *(operator for operator, function in CUSTOM.values() if not function))

BY_FUNCTION = {operator.function: operator for operator in C_OPERATORS}
