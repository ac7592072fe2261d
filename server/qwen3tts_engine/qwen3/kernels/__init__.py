"""Kernels, CUDA streams and graphs, memory, batched steps."""
