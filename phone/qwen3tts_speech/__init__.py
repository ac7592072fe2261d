"""Client half of the line, from text to frames, for phone calls and host plugins."""
