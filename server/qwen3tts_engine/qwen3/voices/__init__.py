"""Cloned voices, their references and the catalogue."""
