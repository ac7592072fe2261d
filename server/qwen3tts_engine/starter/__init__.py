"""Openings said at once, from memory."""
