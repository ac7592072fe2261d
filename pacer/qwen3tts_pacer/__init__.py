"""The AudioPacer: frames in, one per ptime out on an exact clock, and what was heard."""
