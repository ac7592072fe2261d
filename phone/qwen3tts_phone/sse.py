"""Server-sent events, where the bridge and its tests look for them."""

from qwen3tts_wire.sse import MAX_EVENT_CHARS, SseEvent, SseParser

__all__ = ["MAX_EVENT_CHARS", "SseEvent", "SseParser"]
