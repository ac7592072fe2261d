"""The client half of the line, from text to frames: what a phone call and a host plugin share."""
