"""Recognition by Deepgram's streaming WebSocket."""
