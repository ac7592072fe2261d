"""Qwen3-TTS in plain torch: the only package that imports torch."""
