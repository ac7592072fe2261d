"""Vllm omni."""
