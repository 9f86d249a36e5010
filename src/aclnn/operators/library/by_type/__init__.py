"""Operators that have a type in CANN's graphs and no ``aclnn`` function: ``capi.op_types`` alone calls them."""
