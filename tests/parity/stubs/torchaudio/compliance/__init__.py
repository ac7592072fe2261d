"""Stands in for the package of the same name."""
