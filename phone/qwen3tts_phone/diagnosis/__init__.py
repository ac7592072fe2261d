"""Diagnosis of calls: findings, outcome and quality."""
