"""Registration."""
