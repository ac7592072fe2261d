"""Audio between the engine and the wire: resampling, G.711, framing."""
