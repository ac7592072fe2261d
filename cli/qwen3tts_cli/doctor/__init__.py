"""`mr-qwen3tts doctor`, and the checks before a call."""
