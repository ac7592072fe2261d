"""Another speech server as an engine."""
