"""Text laid out for terminals and pipes."""
