"""The voice that a command requests, and its search once a server can be asked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qwen3tts_wire.errors import BadRequest

from ..settings import Settings
from .recordings import ANY_FILE, Access, without_query

PERSONAS = "personas"
"""The host's folder of personas, below its working directory: their recordings lie there."""
LISTED = 20
"""So many of the server's voices are named to a model."""

SHOWN_CHARS = 120
"""So much of a name is in logs; a model may have made it up."""


@dataclass(frozen=True, slots=True)
class VoiceRequest:
    """A voice that is wanted: a name, or recordings of which the first usable one counts."""

    name: str | None = None
    """At the server, ``clone:NAME``, or where a recording is; None and no samples is the server's
    own voice."""
    samples: tuple[str, ...] = ()
    """Paths or addresses of recordings."""
    ref_text: str | None = None
    """What is said in them; None is what a ``.txt`` file beside them says, or the server hears."""
    otherwise: VoiceRequest | None = None
    """What is wanted where this cannot be had; None is the server's own voice."""
    access: Access = ANY_FILE
    """Where recordings may be read from."""

    def __str__(self) -> str:
        names = [self.name] if self.name else self.samples
        shown = ", ".join(map(without_query, names)) or "the server's own voice"
        return _shown(shown)

    def singly(self) -> Iterator[VoiceRequest]:
        """One wish after the other, each for one thing."""
        if self.name is not None:
            yield VoiceRequest(self.name, (), self.ref_text, access=self.access)
        for sample in self.samples:
            yield VoiceRequest(sample, (), self.ref_text, access=self.access)
        if self.otherwise is not None:
            yield from self.otherwise.singly()


def requested_voice(
    voice_id: object, persona: Mapping[str, Any] | None, settings: Settings
) -> VoiceRequest:
    """What a call wants to be spoken with, best first: the argument, the persona's ``voice_id``,
    its ``voice_samples``, the settings' ``ref_audio``, their ``voice``; never raises.

    ``ref_text`` of the settings is what ``ref_audio`` says, so it goes with nothing else; of a
    persona it goes with the persona's voice. The argument is the model's: only a name counts, see
    `refusal_of`. A persona's files lie in the folders for them; the author of the settings may
    name any file.
    """
    private = settings.private_recordings
    folders = (PERSONAS, *([settings.recordings_dir] if settings.recordings_dir else []))
    theirs, ours = Access(folders, private), Access(None, private)
    held: Mapping[str, Any] = persona if isinstance(persona, Mapping) else {}
    words = _name(held.get("ref_text"))
    listed = held.get("voice_samples")
    samples = sorted(filter(None, map(_name, listed))) if isinstance(listed, list | tuple) else []
    wishes = [
        VoiceRequest(None if refusal_of(voice_id) else _name(voice_id)),
        VoiceRequest(_name(held.get("voice_id")), (), words, access=theirs),
        VoiceRequest(None, tuple(samples), words, access=theirs),
        VoiceRequest(settings.ref_audio, (), settings.ref_text, access=ours),
        VoiceRequest(settings.voice, access=ours),
    ]
    chain: VoiceRequest | None = None
    for each in reversed(wishes):
        if each.name is not None or each.samples:
            chain = replace(each, otherwise=chain)
    return chain or VoiceRequest()


def refusal_of(voice_id: object, voices: Sequence[str] = ()) -> BadRequest | None:
    """Why a command's ``voice_id`` does not count; None where it is a name, or nothing.

    What a model writes may be a stranger's words, so it names no file and no web address.

    Args:
        voices: ids at the server, which are named to the model.
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
"""A voice's name or id at a server; no path and no address is one."""


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def _name(value: object) -> str | None:
    """A voice as a model or a persona's file names it, if it names one."""
    text = value.strip() if isinstance(value, str) else ""
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be sent
    return None if text.lower() in ("", "default", "none", "null") or len(text) > 4096 else text
