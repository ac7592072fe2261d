"""Recognisers of speech: Whisper in a process of its own, and services over HTTP or WebSocket."""
