"""A conversation with an agent by typing and reading."""
