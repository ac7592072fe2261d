"""``qwen3tts.speech.v1``, our own protocol."""
