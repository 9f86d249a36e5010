"""Operators that exchange data with the other ranks of a group."""
