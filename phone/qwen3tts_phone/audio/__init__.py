"""Audio of calls: inbound decoding and playout, concealment, tones, WAV files, the RTP sink."""
