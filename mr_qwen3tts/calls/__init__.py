"""Telephone calls of the plugin's own, where the host has no telephone plugin."""
