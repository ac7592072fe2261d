"""Client half of the line, from text to frames."""
