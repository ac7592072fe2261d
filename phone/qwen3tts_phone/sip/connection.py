"""One connection of a stream transport."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qwen3tts_phone.sip.hop import Hop


@dataclass(slots=True, eq=False)
class Connection:
    """A TCP or TLS connection with the far end's address."""

    flow: int
    """Its number, above 0."""
    host: str
    port: int
    writer: asyncio.StreamWriter
    name: str = ""
    """What its certificate had to bear; empty without TLS, or where the far end connected."""
    heard_at: float = 0.0
    """When it last brought something, or was made, in seconds."""
    heard: bool = False
    """Whether it ever brought anything."""
    ours: bool = False
    """Whether we made it."""

    def hop(self, transport: str) -> Hop:
        """Where it leads, for words."""
        return Hop(transport, self.host, self.port, self.flow, name=self.name)
