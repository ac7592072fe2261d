"""Parts of ``call`` and ``answer``: phone, lines, text, agent, course of a call."""
