"""OpenAI's routes for speech, transcription, voices and models."""
