"""Text of one utterance on its way to the server."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable

from qwen3tts_wire.client import Context
from qwen3tts_wire.errors import BadText, SpeechError


class TextFeed:
    """Feed of unchanged deltas, one message each."""

    def __init__(self, words: str | AsyncIterable[str], on_first: Callable[[], object]) -> None:
        self._whole = words if isinstance(words, str) else ""
        self.failed: Exception | None = None
        """Why the text ended early: its source failed, or the context is full."""
        self.ended = False
        """True if the context has been told the end."""
        self._words = _texts(_one(words) if isinstance(words, str) else words)
        self._on_first = on_first
        self._given: list[str] = []
        self._sent = 0
        """Deltas that the context has taken."""
        self._over = False
        """True if nothing more is to be sent."""
        self._refused = False
        """True if the context refused a delta."""
        self._context: Context | None = None

    @property
    def text(self) -> str:
        return "".join(self._given) or self._whole

    @property
    def complete(self) -> bool:
        """True if `text` is all of it."""
        return self._over or bool(self._whole)

    @property
    def unsent(self) -> str:
        return "".join(self._given[self._sent :])

    async def first(self) -> bool:
        """Wait for the first delta; False = none. Raises the source's errors."""
        first = await anext(self._words, None)
        if first is None:
            return False
        self._on_first()
        self._given.append(first)
        return True

    async def run(self) -> None:
        """Take the rest. Raises SpeechError of the context; ``failed``: the source's."""
        try:
            async for delta in self._words:
                self._given.append(delta)
                await self._send()
                if self._over:
                    return
        except Exception as error:
            # Whatever breaks in a caller's source.
            if self._context is not None and error is self._context.error:
                raise
            self.failed = self.failed or error
        self._over = True
        await self._send()

    async def into(self, context: Context) -> None:
        """Send to this context. Raises as ``run``."""
        self._context = context
        await self._send()

    async def _send(self) -> None:
        context = self._context
        if context is None:
            return
        while not self._refused and self._sent < len(self._given):
            # Counted first: one that is stopped while it waits for room has been taken.
            self._sent += 1
            try:
                await context.append(self._given[self._sent - 1])
            except SpeechError as error:
                self._sent -= 1
                if context.error is not None:
                    raise
                self._refused = self._over = True
                self.failed = self.failed or error
        if self._over and not self.ended:
            self.ended = True
            await context.end()


async def _one(text: str) -> AsyncIterator[str]:
    yield text


async def _texts(words: AsyncIterable[str]) -> AsyncIterator[str]:
    async for delta in words:
        if not isinstance(delta, str):
            raise BadText(
                f"The source of the words gave a {type(delta).__name__}.",
                remedy="Each of its deltas must be a string.",
            )
        if delta:
            yield delta
