"""Consoles, exit codes, help pages, files and audio output."""
