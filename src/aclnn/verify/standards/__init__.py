"""Published precision standards, and the measurement of outputs."""
