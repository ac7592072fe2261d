"""Voices: reference audio, cloned voices in memory and on disk, the catalogue."""
