"""A language model on the telephone: it listens, answers, and remembers what was heard."""
