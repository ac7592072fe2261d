"""Stands in for ONNX Runtime, which only the official package's 25 Hz tokenizer uses."""
