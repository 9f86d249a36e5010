"""Cases to verify: arguments, outputs, and the files that they come from."""
