"""Probable causes of an output's errors."""
