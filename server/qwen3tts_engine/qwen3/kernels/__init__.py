"""Execution on a device: kernels, CUDA streams and graphs, memory, batched steps."""
