"""The data of operators: types, tensors, products, status codes, declarations and their checks."""
