"""Supervised worker processes of engines.

Nothing is imported here, so that a worker starts quickly.
"""
