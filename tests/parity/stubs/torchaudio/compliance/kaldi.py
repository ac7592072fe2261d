"""Imported by the official package at the top of a file; never called at 12 Hz."""
