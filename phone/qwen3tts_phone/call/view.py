"""Read-only view of a call."""

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
    def __init__(self, core: CallCore) -> None:
        self._core = core

    @property
    def line(self) -> str:
        """Kind of line: ``sip``, or that of a stream, such as ``audiosocket``."""
        return self.facts.line

    @property
    def id(self) -> str:
        return self.facts.call_id

    @property
    def direction(self) -> str:
        return self.facts.direction

    @property
    def remote_uri(self) -> str:
        """Address or number of the far end; empty = unknown."""
        return self.facts.remote_uri

    @property
    def dialled_uri(self) -> str:
        return self.facts.dialled_uri

    @property
    def identity(self) -> str:
        """Far end as asserted by a trusted server, else by itself."""
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
        """SDP name of the outbound codec; empty = not agreed yet."""
        return self._core.payload.name if self._core.payload is not None else ""

    @property
    def encrypted(self) -> bool:
        return False

    @property
    def speaking(self) -> bool:
        return self._core.speaker is not None and self._core.speaker.speaking

    @property
    def speaker(self) -> Speaker | None:
        """Speaker of the utterances; None before the answer and after the end."""
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
        """Record of a call that is over; else None."""
        return self._core.record

    @property
    def audio(self) -> InboundAudio:
        """Inbound audio (`HeardFrame`) until the call ends, for any number of readers.

        ``call.audio``: frames on arrival; ``call.audio(steady=True)``: one a packet time of our
        clock, gapless, behind an adaptive jitter buffer.
        """
        return self._core.inbound

    @property
    def dtmf(self) -> Keypad:
        """Keys of the far end (`KeyPressed`); see also ``call.dtmf.collect()``."""
        return self._core.keypad
