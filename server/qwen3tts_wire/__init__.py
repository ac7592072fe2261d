"""``qwen3tts.speech.v1``, the protocol between a call and the synthesis server."""
