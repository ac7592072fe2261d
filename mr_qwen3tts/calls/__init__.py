"""Calls of our own telephone, where the host has none."""
