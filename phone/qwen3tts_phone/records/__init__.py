"""Records and recordings of calls."""
