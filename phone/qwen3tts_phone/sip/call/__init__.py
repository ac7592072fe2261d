"""Call."""
