"""Parts of `call` and `answer`: phone, lines, text, agent, the course of a call."""
