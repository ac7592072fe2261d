"""Protocols of other servers."""
