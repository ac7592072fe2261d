"""Whisper on CTranslate2: for callers' turns, and for recordings that come without their words."""
