"""Recognition by OpenAI's transcription route, at OpenAI or at a server with the same route."""
