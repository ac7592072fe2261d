"""Telephone in the browser."""
