"""Openings of texts, spoken from memory."""
