"""Golden values: exact results of the documented formulas, rounded once."""
