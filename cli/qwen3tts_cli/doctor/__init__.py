"""``mr-qwen3tts doctor``, and preflight checks of calls."""
