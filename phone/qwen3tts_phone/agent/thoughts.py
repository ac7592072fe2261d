"""Leaves out what a model thinks aloud before it answers: ``<think>…</think>``."""

from __future__ import annotations

BEGIN, END = "<think>", "</think>"


class Thoughts:
    """Deltas in, the answer's deltas out (pure).

    Only a reply that *begins* with ``<think>`` has thoughts: the marks are in the text where a
    server does not part them itself. Thoughts that never end leave nothing to say.
    """

    def __init__(self) -> None:
        self.thinking = False
        """Whether the model thinks now."""
        self._held: str | None = ""
        """What may still be, or end, a thought; None: the answer has begun."""

    def push(self, delta: str) -> str:
        """What of it belongs to the answer."""
        if self._held is None:
            return delta
        self._held += delta
        if not self.thinking:
            text = self._held.lstrip()
            if BEGIN.startswith(text):
                return ""
            if not text.startswith(BEGIN):
                return self.finish()
            self.thinking = True
        before, end, after = self._held.partition(END)
        if not end:
            self._held = before[-len(END) :]
            return ""
        self.thinking = False
        # An answer may stand after an empty line.
        self._held = None if after.strip() else ""
        return after.lstrip()

    def finish(self) -> str:
        """The text is over, or is none with thoughts: what was held."""
        held, self._held = self._held, None
        return "" if self.thinking else held or ""
