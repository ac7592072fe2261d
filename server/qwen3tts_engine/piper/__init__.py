"""Voices in Piper's format (VITS) on ONNX Runtime, decoded in exact chunks."""
