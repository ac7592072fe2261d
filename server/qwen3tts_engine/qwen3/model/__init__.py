"""Checkpoint files, tokenizer, prompt and networks of Qwen3-TTS."""
