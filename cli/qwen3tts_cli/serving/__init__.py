"""The parts of ``mr-qwen3tts serve``."""
