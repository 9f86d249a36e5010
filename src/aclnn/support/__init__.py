"""Environment variables, control groups, trusted files, atomic replacement, optional dependencies, bounded caches."""
