"""Media process: one exact loop that owns the RTP sockets of all calls."""
