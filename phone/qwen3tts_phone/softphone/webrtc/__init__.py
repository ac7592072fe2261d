"""Webrtc."""
