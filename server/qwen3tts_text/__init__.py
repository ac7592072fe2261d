"""Text on its way to speech: segmentation, speakable text, growing text. Pure."""
