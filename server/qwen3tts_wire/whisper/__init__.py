"""Whisper on CTranslate2: for callers' turns and for recordings without a transcript."""
