"""Pipes: data that passes through the plugins."""
