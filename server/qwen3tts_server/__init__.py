"""The synthesis server: sessions over a WebSocket in front of an engine."""
