"""Which voice is wanted, and what is wanted where it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .recordings import without_query
from .settings import Settings

SHOWN_CHARS = 120
"""So much of a name is in logs; a model may have made it up."""


@dataclass(frozen=True, slots=True)
class VoiceWish:
    """A voice that is wanted: a name, or recordings of which the first usable one counts."""

    name: str | None = None
    """At the server, ``clone:NAME``, or where a recording is; None and no samples is the server's
    own voice."""
    samples: tuple[str, ...] = ()
    """Paths or addresses of recordings."""
    ref_text: str | None = None
    """What is said in them; None is what a ``.txt`` file beside them says, or the server hears."""
    otherwise: VoiceWish | None = None
    """What is wanted where this cannot be had; None is the server's own voice."""

    def __str__(self) -> str:
        names = [self.name] if self.name else self.samples
        shown = ", ".join(map(without_query, names)) or "the server's own voice"
        return shown if len(shown) <= SHOWN_CHARS else f"{shown[:SHOWN_CHARS]}…"

    def singly(self) -> Iterator[VoiceWish]:
        """One wish after the other, each for one thing."""
        if self.name is not None:
            yield VoiceWish(self.name, (), self.ref_text)
        for sample in self.samples:
            yield VoiceWish(sample, (), self.ref_text)
        if self.otherwise is not None:
            yield from self.otherwise.singly()


def wish_of(voice_id: object, persona: Mapping[str, Any] | None, settings: Settings) -> VoiceWish:
    """What a call wants to be spoken with, best first: the argument, the persona's ``voice_id``,
    its ``voice_samples``, the settings' ``ref_audio``, their ``voice``; never raises.

    ``ref_text`` of the settings is what ``ref_audio`` says, so it goes with nothing else; of a
    persona it goes with the persona's voice.
    """
    held: Mapping[str, Any] = persona if isinstance(persona, Mapping) else {}
    words = _name(held.get("ref_text"))
    listed = held.get("voice_samples")
    samples = sorted(filter(None, map(_name, listed))) if isinstance(listed, list | tuple) else []
    wishes = [
        VoiceWish(_name(voice_id)),
        VoiceWish(_name(held.get("voice_id")), (), words),
        VoiceWish(None, tuple(samples), words),
        VoiceWish(settings.ref_audio, (), settings.ref_text),
        VoiceWish(settings.voice),
    ]
    chain: VoiceWish | None = None
    for each in reversed(wishes):
        if each.name is not None or each.samples:
            chain = VoiceWish(each.name, each.samples, each.ref_text, chain)
    return chain or VoiceWish()


def _name(value: object) -> str | None:
    """A voice as a model or a persona's file names it, if it names one."""
    text = value.strip() if isinstance(value, str) else ""
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
    return None if text.lower() in ("", "default", "none", "null") or len(text) > 4096 else text
