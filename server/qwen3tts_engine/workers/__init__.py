"""Processes that speak for an engine: given jobs, supervised, replaced when they are lost.

Nothing is imported here, so that a worker starts quickly.
"""
