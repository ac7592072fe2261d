"""Runvnc."""
