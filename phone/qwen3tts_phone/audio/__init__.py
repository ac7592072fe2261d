"""Audio of calls: decoding, concealment, playout, tones and the RTP sink."""
