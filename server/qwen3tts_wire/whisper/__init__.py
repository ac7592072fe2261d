"""Whisper on CTranslate2, for turns and recordings."""
