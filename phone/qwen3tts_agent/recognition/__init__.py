"""Recognition."""
