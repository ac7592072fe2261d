"""Stands in for torchaudio, which only the official package's 25 Hz tokenizer uses."""
