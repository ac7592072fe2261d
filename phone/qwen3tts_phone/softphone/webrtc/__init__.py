"""WebRTC calls of the softphone."""
