"""Inbound audio of a stream: decoding, counters and the watchdog of the far end."""

from __future__ import annotations

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import MAX_FRAME_SAMPLES, AudioDecoder
from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.streams.adapter import StreamAudio, StreamLost
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_phone.streams.sink import StreamSink

MAX_CHUNK_MS = 60
"""Longer messages are cut, so that no decoder has to take more than it may."""
MAX_AHEAD_S = 10.0
"""A place in the stream that is further ahead is none: a far end may send any number."""
MAX_CONCEALED_MS = 200.0
"""So much of a hole is concealed; the rest of it is silence nobody waits for."""


class StreamDecoder:
    """One call's (pure): decodes, and conceals what never came."""

    def __init__(self) -> None:
        self._hearing = AudioDecoder({}, comfort_noise=frozenset())
        self._types: dict[Payload, int] = {}
        self._played_s = 0.0  # of the stream, up to the next frame
        self._frame_ms = 20.0

    @property
    def undecodable(self) -> int:
        """Messages that held no sound of their format."""
        return self._hearing.undecodable

    def take(self, audio: StreamAudio, payload: Payload, at: float) -> list[HeardFrame]:
        """What is heard with a message in format ``payload`` that came ``at``, in order.

        Raises CodecMissing where the format's library is not installed.
        """
        if audio.timestamp_ms is not None:
            ahead_s = audio.timestamp_ms / 1000 - self._played_s
            if 0.0 < ahead_s <= MAX_AHEAD_S:
                self._played_s += ahead_s
        heard: list[HeardFrame] = []
        for piece in _pieces(audio.data, payload):
            heard += self._frame(piece, payload, at)
        return heard

    def lost(self, lost: StreamLost, payload: Payload, at: float) -> list[HeardFrame]:
        """What is made up for sound that never came."""
        heard: list[HeardFrame] = []
        left_ms = min(lost.duration_ms, MAX_CONCEALED_MS)
        while left_ms > 0:
            heard += self._frame(b"", payload, at, concealed=True)
            left_ms -= self._frame_ms
        return heard

    def _frame(
        self, data: bytes, payload: Payload, at: float, *, concealed: bool = False
    ) -> list[HeardFrame]:
        number = self._types.get(payload)
        if number is None:
            number = self._types[payload] = len(self._types)
            self._hearing.change({number: payload})
        frame = InboundFrame(
            data, number, round(self._played_s * payload.clock_hz), at, 0, False, concealed
        )
        heard = self._hearing.take(frame)
        for each in heard:
            self._played_s += each.duration_s
            if each.duration_s:
                self._frame_ms = each.duration_s * 1000
        return heard


def _pieces(data: bytes, payload: Payload) -> list[bytes]:
    """A message in pieces of `MAX_CHUNK_MS`, where the format can be cut; whole samples each."""
    if payload.overlapped:
        return [data]
    size = min(payload.frame_bytes(MAX_CHUNK_MS), MAX_FRAME_SAMPLES * (payload.sample_bytes or 1))
    return [data[at : at + size] for at in range(0, len(data), size)]


class StreamCounters:
    """One call's."""

    def __init__(self) -> None:
        self.sounds = 0
        self.losses = 0
        self._octets = 0
        self._first_at: float | None = None
        self._last_at: float | None = None

    def sound(self, octets: int, now: float) -> None:
        """One with sound in it."""
        self.sounds += 1
        self._octets += octets
        self._first_at = now if self._first_at is None else self._first_at
        self._last_at = now

    def lost(self) -> None:
        """One that should have come and did not."""
        self.losses += 1

    def stats(self, sink: StreamSink | None, undecodable: int, unheard: int) -> LegStats:
        """As the counters of a leg: messages in the place of packets."""
        sent = sink.sent_frames if sink is not None else 0
        return LegStats(
            sent=sent,
            speech_sent=sent,
            skipped_slots=sink.skipped_slots if sink is not None else 0,
            starvations=sink.starvations if sink is not None else 0,
            send_errors=0,
            received=self.sounds,
            lost=self.losses,
            late=0,
            duplicates=0,
            concealed=self.losses,
            jitter_ms=0.0,
            jitter_wait_ms=0.0,
            strangers=0,
            malformed=undecodable,
            unknown_payload=0,
            inbound_overrun=unheard,
            dtmf_in=0,
            dtmf_out=0,
            rtcp_in=0,
            rtcp_out=0,
            remote_lost=0,
            remote_fraction_lost=0.0,
            remote_jitter_ms=0.0,
            round_trip_ms=None,
            lateness_max_ms=0.0,
            octets_received=self._octets,
            fraction_lost=self.losses / (self.losses + self.sounds) if self.losses else 0.0,
            first_sent_at=sink.first_at if sink is not None else None,
            first_received_at=self._first_at,
            last_received_at=self._last_at,
        )


class StreamWatchdog:
    """One stream's. Times are seconds of the clock."""

    def __init__(self, settings: StreamSettings, now: float) -> None:
        self._settings = settings
        self._opened_at = self._last_at = self._sound_at = now
        self._begun = False
        self._any_sound = False
        self._told = False

    def begun(self, now: float) -> None:
        """The far end has said which call it is."""
        self._begun = True
        self._sound_at = now

    def message(self, now: float) -> None:
        """Anything came."""
        self._last_at = now

    def sound(self, now: float) -> bool:
        """Sound came; True: for the first time, or after a silence that was told."""
        news = self._told or not self._any_sound
        self._sound_at, self._any_sound, self._told = now, True, False
        return news

    def silent_s(self, now: float) -> float | None:
        """How long no sound has come, where that is to be told now: once each time."""
        silent_s, most_s = now - self._sound_at, self._settings.media_silent_s
        if not self._begun or not most_s or self._told or silent_s < most_s:
            return None
        self._told = True
        return silent_s

    def lost(self, now: float, blocked_at: float | None = None) -> CalleeUnreachable | None:
        """Why nobody waits any longer; None = all is well.

        ``blocked_at``: since when it takes nothing of what it is sent; None = it takes all.
        """
        settings = self._settings
        if not self._begun:
            if now - self._opened_at < settings.start_s:
                return None
            return CalleeUnreachable(
                "The far end has not begun the stream: it never said which call it is.",
                remedy="Check that what connects here is of the kind that the path says.",
                why="session",
            )
        if not settings.vanished_s:
            return None
        if blocked_at is not None and now - blocked_at >= settings.vanished_s:
            return CalleeUnreachable(
                "The far end takes nothing any more of what it is sent.",
                remedy="Check the network between and the far end, then call again.",
                why="session",
            )
        if now - self._last_at < settings.vanished_s:
            return None
        return CalleeUnreachable(
            "The far end has vanished: nothing at all came any more.",
            remedy="Check the network between, then call again.",
            why="session",
        )
