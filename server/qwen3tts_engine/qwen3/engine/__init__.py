"""Generations of many requests in one batch, on one thread."""
