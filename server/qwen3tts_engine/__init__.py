"""Text to speech: the engine interface, the segmenter and the engines."""
