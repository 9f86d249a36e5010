"""Verdicts as a JSON document, as text and as an HTML page."""
