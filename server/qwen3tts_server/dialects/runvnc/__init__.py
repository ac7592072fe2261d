"""The runvnc protocol."""
