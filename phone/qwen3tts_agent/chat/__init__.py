"""Client of a language model: messages, streamed replies, settings and their check."""
