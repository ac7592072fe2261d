"""Dialling."""
