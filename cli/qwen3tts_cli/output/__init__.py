"""Consoles, exit codes, help pages, files and the loudspeaker."""
