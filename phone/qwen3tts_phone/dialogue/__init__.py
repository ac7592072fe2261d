"""Dialogue with a far end on one call: a question and its answer, and who has taken the call."""
