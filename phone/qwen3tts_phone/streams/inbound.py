"""Inbound audio of a stream, and its watchdog."""

from __future__ import annotations

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import MAX_FRAME_SAMPLES, AudioDecoder
from qwen3tts_phone.errors import CalleeUnreachable
from qwen3tts_phone.media.stats import LegStats
from qwen3tts_phone.streams.carriers.adapter import StreamAudio, StreamLost
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_phone.streams.sink import StreamSink

MAX_CHUNK_MS = 60
MAX_AHEAD_S = 10.0
MAX_CONCEALED_MS = 200.0
"""Longest concealment of a gap; the rest is skipped."""


class StreamDecoder:
    def __init__(self) -> None:
        self._hearing = AudioDecoder({}, comfort_noise=frozenset())
        self._types: dict[Payload, int] = {}
        self._played_s = 0.0  # of the stream, up to the next frame
        self._frame_ms = 20.0

    @property
    def undecodable(self) -> int:
        return self._hearing.undecodable

    def take(self, audio: StreamAudio, payload: Payload, at: float) -> list[HeardFrame]:
        """Decode a message in ``payload`` that arrived ``at``; raises CodecMissing."""
        if audio.timestamp_ms is not None:
            ahead_s = audio.timestamp_ms / 1000 - self._played_s
            if 0.0 < ahead_s <= MAX_AHEAD_S:
                self._played_s += ahead_s
        heard: list[HeardFrame] = []
        for piece in _pieces(audio.data, payload):
            heard += self._frame(piece, payload, at)
        return heard

    def lost(self, lost: StreamLost, payload: Payload, at: float) -> list[HeardFrame]:
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
    if payload.overlapped:
        return [data]
    size = min(payload.frame_bytes(MAX_CHUNK_MS), MAX_FRAME_SAMPLES * (payload.sample_bytes or 1))
    return [data[at : at + size] for at in range(0, len(data), size)]


class StreamCounters:
    def __init__(self) -> None:
        self.sounds = 0
        self.losses = 0
        self._octets = 0
        self._first_at: float | None = None
        self._last_at: float | None = None

    def sound(self, octets: int, now: float) -> None:
        self.sounds += 1
        self._octets += octets
        self._first_at = now if self._first_at is None else self._first_at
        self._last_at = now

    def lost(self) -> None:
        self.losses += 1

    def stats(self, sink: StreamSink | None, undecodable: int, unheard: int) -> LegStats:
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
    """Watchdog of start, audio and liveness; seconds of the clock."""

    def __init__(self, settings: StreamSettings, now: float) -> None:
        self._settings = settings
        self._opened_at = self._last_at = self._sound_at = now
        self._begun = False
        self._any_sound = False
        self._reported = False

    def begun(self, now: float) -> None:
        self._begun = True
        self._sound_at = now

    def message(self, now: float) -> None:
        self._last_at = now

    def sound(self, now: float) -> bool:
        news = self._reported or not self._any_sound
        self._sound_at, self._any_sound, self._reported = now, True, False
        return news

    def silent_s(self, now: float) -> float | None:
        """Return a silence's length when it is to be reported, once."""
        silent_s, most_s = now - self._sound_at, self._settings.media_silent_s
        if not self._begun or not most_s or self._reported or silent_s < most_s:
            return None
        self._reported = True
        return silent_s

    def lost(self, now: float, blocked_at: float | None = None) -> CalleeUnreachable | None:
        """Return the error that ends the stream, or None.

        ``blocked_at``: time since which it takes nothing sent.
        """
        settings = self._settings
        if not self._begun:
            if now - self._opened_at < settings.start_s:
                return None
            return CalleeUnreachable(
                "The far end has not started the stream: it never identified the call.",
                remedy="Check that what connects here is of the kind that the path says.",
                why="session",
            )
        if not settings.vanished_s:
            return None
        if blocked_at is not None and now - blocked_at >= settings.vanished_s:
            return CalleeUnreachable(
                "The far end does not accept data any more.",
                remedy="Check the network between and the far end, then call again.",
                why="session",
            )
        if now - self._last_at < settings.vanished_s:
            return None
        return CalleeUnreachable(
            "The far end has vanished: no message has come any more.",
            remedy="Check the network between, then call again.",
            why="session",
        )
