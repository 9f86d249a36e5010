"""Cases to judge: arguments, outputs, and the files that they come from."""
