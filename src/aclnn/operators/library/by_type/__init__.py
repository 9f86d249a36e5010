"""Operators with a type in CANN's graphs and no ``aclnn`` function, called by ``capi.op_types`` alone."""
