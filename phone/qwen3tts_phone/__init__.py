"""Real phone calls: SIP signalling, the RTP media process, the call that joins both to speech."""
