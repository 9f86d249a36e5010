"""Diagnosis: probable causes of an output's errors."""
