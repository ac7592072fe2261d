"""Client of a language model."""
