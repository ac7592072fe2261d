"""The text of one utterance, which may come before the engine has begun."""

from __future__ import annotations

from qwen3tts_server.speaking import Speaking
from qwen3tts_wire.messages import ContextOpen


class GrowingSpeech:
    """One utterance, whose text may come before it has begun."""

    def __init__(self, order: ContextOpen) -> None:
        self.order = order
        self._speaking: Speaking | None = None
        self._early = ""
        self._ended = False
        self.stopped = False

    def begin(self, speaking: Speaking) -> None:
        """Its task runs now."""
        self._speaking = speaking
        if self._early:
            speaking.append(self._early)
        if self._ended:
            speaking.end()
        if self.stopped:
            speaking.cancel()

    def append(self, text: str) -> None:
        """More text."""
        if self._speaking is None:
            self._early += text
        else:
            self._speaking.append(text)

    def end(self) -> None:
        """No more text."""
        self._ended = True
        if self._speaking is not None:
            self._speaking.end()

    def stop(self) -> None:
        """The client wants no more of it; the engine stops at once."""
        self.stopped = True
        if self._speaking is not None:
            self._speaking.cancel()

    def flush_deadline(self, now: float) -> float | None:
        """When a pause in its text will have to be a flush."""
        if self._speaking is None or self.stopped:
            return None
        return self._speaking.utterance.flush_deadline(now)

    def flush_if_due(self, now: float) -> None:
        """Speak what is there, if the pause in its text is long enough."""
        due = self.flush_deadline(now)
        if self._speaking is not None and due is not None and due <= now:
            self._speaking.flush()
