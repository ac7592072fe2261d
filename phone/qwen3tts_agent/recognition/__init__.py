"""Recognisers of speech: Whisper, and services over HTTP or WebSocket."""
