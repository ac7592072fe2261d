"""What the engine wants of a server, whatever that server speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Order:
    """One text to be spoken, in the server's own names."""

    text: str
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    instructions: str | None = None
    seed: int | None = None
    initial_codec_chunk_frames: int | None = None

    def fields(self) -> dict[str, Any]:
        """What is asked for, by the field names that both protocols share; without the text."""
        found: dict[str, Any] = {
            "voice": self.voice,
            "language": self.language,
            "instructions": self.instructions,
            "seed": self.seed,
            "initial_codec_chunk_frames": self.initial_codec_chunk_frames,
        }
        return {name: value for name, value in found.items() if value is not None}


class Backend(Protocol):
    """One protocol, as a client."""

    @property
    def options(self) -> frozenset[str]:
        """Fields of Order that it can send and that servers usually take."""
        ...

    async def probe(self) -> None:
        """See whether speech could be asked for.

        Raises:
            Unreachable: nothing answers there.
            SpeechError: what answers is no such server.
        """
        ...

    def speak(self, order: Order) -> AsyncGenerator[bytes, None]:
        """The sound as the server sends it, in any cut; ``aclose`` takes the request back at once.

        Raises:
            Unreachable: nothing answers there; nothing was sent.
            Stalled: it took too long.
            SpeechError: its fault as ours.
        """
        ...

    async def close(self) -> None:
        """Free what is kept between requests."""
        ...


def with_extra(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields, with those of ``extra`` over them; null takes a field out."""
    return {name: value for name, value in {**fields, **extra}.items() if value is not None}
