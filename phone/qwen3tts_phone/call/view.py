"""Read-only view of a call: identity, state, facts, inbound audio and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.inbound import InboundAudio
from qwen3tts_phone.call.core import CallCore
from qwen3tts_phone.call.keys import Keypad
from qwen3tts_phone.facts import CallFacts
from qwen3tts_speech.line import Speaker

if TYPE_CHECKING:
    from qwen3tts_phone.records.record import CallRecord


class CallView:
    """State of a call, read from its core and its facts."""

    def __init__(self, core: CallCore) -> None:
        self._core = core

    @property
    def line(self) -> str:
        """Kind of line: ``sip``, or the kind of stream, such as ``audiosocket``."""
        return self.facts.line

    @property
    def id(self) -> str:
        """Identifier at the line: SIP's Call-ID, a carrier's call id."""
        return self.facts.call_id

    @property
    def direction(self) -> str:
        return self.facts.direction

    @property
    def remote_uri(self) -> str:
        """Address or number of the far end; empty = not known."""
        return self.facts.remote_uri

    @property
    def dialled_uri(self) -> str:
        """Address or number that was called; empty = not known."""
        return self.facts.dialled_uri

    @property
    def identity(self) -> str:
        """Far end as asserted by a trusted server, else as it says itself."""
        return self.facts.identity or self.remote_uri

    @property
    def display_name(self) -> str:
        return self.facts.display_name

    @property
    def account(self) -> str:
        return self.facts.account

    @property
    def facts(self) -> CallFacts:
        return self._core.facts

    @property
    def codec(self) -> str:
        """SDP name of the codec that we send; empty = not agreed yet."""
        return self._core.payload.name if self._core.payload is not None else ""

    @property
    def encrypted(self) -> bool:
        return False

    @property
    def speaking(self) -> bool:
        return self._core.speaker is not None and self._core.speaker.speaking

    @property
    def speaker(self) -> Speaker | None:
        """Speaker, for direct control of utterances; None before the answer and after the end."""
        core = self._core
        return core.speaker if core.may_speak and not core.over.is_set() else None

    @property
    def held(self) -> bool:
        return self._core.held

    @property
    def over(self) -> bool:
        return self._core.over.is_set()

    @property
    def clock(self) -> Clock:
        return self._core.clock

    @property
    def unheard_frames(self) -> int:
        return self._core.inbound.unheard_frames

    @property
    def detail_record(self) -> CallRecord | None:
        """Record of the call, once it is over and its recordings are finished; else None."""
        return self._core.record

    @property
    def audio(self) -> InboundAudio:
        """Inbound audio (`HeardFrame`) until the call ends, for any number of readers.

        ``async for frame in call.audio``: frames on arrival; ``call.audio(steady=True)``: one for
        each packet time of our clock, without gaps, behind an adaptive jitter buffer.
        """
        return self._core.inbound

    @property
    def dtmf(self) -> Keypad:
        """Keys of the far end: ``async for key in call.dtmf`` (`KeyPressed`), ``await
        call.dtmf.collect()``.
        """
        return self._core.keypad
