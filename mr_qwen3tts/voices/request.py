"""The requested voice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qwen3tts_wire.errors import BadRequest

from ..settings import Settings
from .recordings import ANY_FILE, Access, without_query

PERSONAS = "personas"
"""Below the host's working directory."""
LISTED = 20
"""Voices named to a model."""

SHOWN_CHARS = 120
"""Characters of a name in logs."""


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """Name, or recordings of which the first usable counts."""

    name: str | None = None
    """At the server, ``clone:NAME``, or a recording's place; None: the server's own."""
    samples: tuple[str, ...] = ()
    """Recordings."""
    ref_text: str | None = None
    """Transcript; None: the ``.txt`` file's, or the server's."""
    otherwise: VoiceRequest | None = None
    """Next best; None: the server's."""
    access: Access = ANY_FILE

    def __str__(self) -> str:
        names = [self.name] if self.name else self.samples
        shown = ", ".join(map(without_query, names)) or "the server's own voice"
        return _shown(shown)

    def singly(self) -> Iterator[VoiceRequest]:
        """Return the chain, one voice each."""
        if self.name is not None:
            yield VoiceRequest(self.name, (), self.ref_text, access=self.access)
        for sample in self.samples:
            yield VoiceRequest(sample, (), self.ref_text, access=self.access)
        if self.otherwise is not None:
            yield from self.otherwise.singly()


def requested_voice(
    voice_id: object, persona: Mapping[str, Any] | None, settings: Settings
) -> VoiceRequest:
    """Return a call's chain; never raises.

    Argument, persona's ``voice_id`` and ``voice_samples``, settings' ``ref_audio`` (with
    ``ref_text``) and ``voice``. The argument is the model's: names only, see `refusal_of`.
    Persona files lie in its folders; settings may name any.
    """
    private = settings.private_recordings
    folders = (PERSONAS, *([settings.recordings_dir] if settings.recordings_dir else []))
    theirs, ours = Access(folders, private), Access(None, private)
    held: Mapping[str, Any] = persona if isinstance(persona, Mapping) else {}
    words = _name(held.get("ref_text"))
    listed = held.get("voice_samples")
    samples = sorted(filter(None, map(_name, listed))) if isinstance(listed, list | tuple) else []
    requests = [
        VoiceRequest(None if refusal_of(voice_id) else _name(voice_id)),
        VoiceRequest(_name(held.get("voice_id")), (), words, access=theirs),
        VoiceRequest(None, tuple(samples), words, access=theirs),
        VoiceRequest(settings.ref_audio, (), settings.ref_text, access=ours),
        VoiceRequest(settings.voice, access=ours),
    ]
    chain: VoiceRequest | None = None
    for each in reversed(requests):
        if each.name is not None or each.samples:
            chain = replace(each, otherwise=chain)
    return chain or VoiceRequest()


def refusal_of(voice_id: object, voices: Sequence[str] = ()) -> BadRequest | None:
    """Return why a ``voice_id`` is ignored; None for a name.

    A stranger may have dictated it: no file, no address. ``voices``: ids named to the model.
    """
    name = _name(voice_id)
    if name is None or _NAME.fullmatch(name):
        return None
    listed = ", ".join(voices[:LISTED]) + (", ..." if len(voices) > LISTED else "")
    return BadRequest(
        f"The voice_id {_shown(name)!r} is no name of a voice. Files and web addresses of "
        "recordings are taken from the persona and the settings only.",
        remedy="Leave voice_id out, or give the name of one of the server's voices"
        f"{f' ({listed})' if listed else ''}, clone:NAME for an uploaded one, or the 64 "
        "hexadecimal digits of its id.",
    )


_NAME = re.compile(r"(clone:)?\w[\w .+'()-]{0,119}", re.IGNORECASE)
"""No path, no address."""


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _name(value: object) -> str | None:
    text = value.strip() if isinstance(value, str) else ""
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
    return None if text.lower() in ("", "default", "none", "null") or len(text) > 4096 else text
