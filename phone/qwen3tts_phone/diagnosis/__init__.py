"""Diagnosis of calls: findings, outcome and quality, from the facts of a call."""
