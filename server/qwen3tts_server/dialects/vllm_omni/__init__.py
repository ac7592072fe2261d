"""vLLM-Omni's WebSocket for speech."""
