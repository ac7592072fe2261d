"""UDP, TCP, TLS and DNS."""
