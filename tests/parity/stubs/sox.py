"""Stands in for SoX, which only the official package's 25 Hz tokenizer uses."""
