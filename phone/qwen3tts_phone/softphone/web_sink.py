"""Where the speech of a call in the browser goes: one packet for each place of the pacer.

The pacer's clock is the only one. Silence is sent between utterances, for a browser's jitter buffer
keeps its measure of the line by packets that come all the time.
"""

from __future__ import annotations

from collections.abc import Callable

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.clock import Clock
from qwen3tts_pacer.frame import Kind, Slot
from qwen3tts_pacer.policy import Filling, FillingPolicy
from qwen3tts_phone.call_sink import Tap
from qwen3tts_speech.pacer_sink import PacerSink
from qwen3tts_speech.sink import Played

QUEUED_S = 0.06
"""What lies between a packet's sending and the ear, until the browser says how much."""
MOST_QUEUED_S = 1.0
"""No more is believed."""

LATE_MS = 100
"""A packet may go out so late. This clock shares its process with all else, and a browser's buffer
grows by what came late, where it would have to make up what was skipped."""

Put = Callable[[bytes, int], None]
"""Takes the payload of a packet, and how many frames have passed since the last one."""


class WebSink(PacerSink):
    """A `CallSink` on a track; one per call."""

    def __init__(
        self,
        put: Put,
        payload: Payload,
        *,
        ptime_ms: int = 20,
        clock: Clock | None = None,
        policy: Filling | None = None,
    ) -> None:
        super().__init__(
            self._packet,
            silence=payload.silent_frame(ptime_ms),
            ptime_ms=ptime_ms,
            lead_ms=0,
            queued_s=QUEUED_S,
            clock=clock,
            policy=policy or FillingPolicy(ptime_s=ptime_ms / 1000),
            continuous=True,
            late_ms=LATE_MS,
        )
        self.sent_packets = 0
        self.sent_octets = 0
        """Of payload."""
        self.sent_frames = 0
        """Packets of these that were speech."""
        self.first_packet_at: float | None = None
        """When the first packet went out, seconds of the clock."""
        self.first_at: float | None = None
        """When the first one of speech did."""
        self.latest_s = 0.0
        """The latest that a packet went out after its time."""
        self._put = put
        self._sound_until = self.clock.now()
        self._last_at: float | None = None
        self._longest_gap_s = 0.0
        self._heard: dict[int, int] = {}
        self._taps: list[Tap] = []

    # --- FrameSink

    async def drained(self, context: int) -> Played:
        """Return when the context's last frame has been sent, or it was dropped."""
        played = await super().drained(context)
        if played.last_at is not None and not played.dropped:
            self._last_at = self.clock.now()
        self._heard.pop(context, None)
        return played

    def position(self, context: int) -> int:
        """Samples of the context that are at the caller's ear by now; it never goes back."""
        over = self._over.get(context)
        if over is not None:
            return over.position
        position = max(self._heard.get(context, 0), super().position(context))
        self._heard[context] = position
        return position

    def interrupt(self) -> None:
        """Fall silent: not one more frame of speech is sent."""
        now = self.clock.now()
        self.interruptions += 1
        # It is silent on the line when the last frame of speech is over.
        self._silence(now, max(now, self._sound_until))
        self._heard.clear()

    # --- CallSink

    @property
    def last_at(self) -> float | None:
        """When the last utterance that was played to its end went out, seconds."""
        return self._last_at

    def tap(self, tap: Tap) -> None:
        """``tap`` is given each frame of speech that goes out from now on."""
        if tap not in self._taps:
            self._taps.append(tap)

    def untap(self, tap: Tap) -> None:
        """No more of them."""
        if tap in self._taps:
            self._taps.remove(tap)

    def follow(self) -> None:
        """Taps are told at once: there is nothing more."""

    def gone(self) -> None:
        """The line is gone; whoever speaks has been closed before."""

    # --- what the line is like

    @property
    def queued_s(self) -> float:
        """What lies between a packet's sending and the ear, seconds."""
        return self._queued_s

    def lies_behind(self, queued_s: float) -> None:
        """The browser says what lies between our sending and its ear, seconds."""
        self._queued_s = min(max(queued_s, 0.0), MOST_QUEUED_S)

    @property
    def state(self) -> str:
        """What the pacer does."""
        return self._pacer.core.state.value

    @property
    def unsent_s(self) -> float:
        """Speech that waits to be sent, seconds."""
        return self._pacer.core.queued * self._ptime_s

    @property
    def skipped_slots(self) -> int:
        """Places in time that passed unsent, because this machine was late."""
        return self._pacer.core.skipped_slots

    @property
    def starvations(self) -> int:
        """How often an utterance ran dry in its middle."""
        return self._pacer.core.starvations

    @property
    def longest_gap_s(self) -> float:
        """The longest time that one was dry, seconds."""
        going = (each.longest_gap_s for each in self._going.values())
        return max(self._longest_gap_s, max(going, default=0.0))

    def first_audible_at(self, context: int) -> float | None:
        """When the first frame of a context with sound in it went out; None = it did not yet."""
        over = self._over.get(context)
        if over is not None:
            return over.first_audible_at
        going = self._going.get(context)
        return going.first_audible_at if going is not None else None

    # --- inside

    async def _packet(self, payload: bytes, slot: Slot) -> None:
        now = self.clock.now()
        self._put(payload, slot.ticks)
        self.sent_packets += 1
        self.sent_octets += len(payload)
        self.latest_s = max(self.latest_s, now - slot.deadline)
        if self.first_packet_at is None:
            self.first_packet_at = now
        if slot.kind is not Kind.SILENCE:
            self._sound_until = max(now, slot.deadline) + self._ptime_s
        if slot.frame is None:
            return
        self.first_at = now if self.first_at is None else self.first_at
        self.sent_frames += 1
        for tap in list(self._taps):
            # Its place on the grid is that of its RTP timestamp, also where it goes out late.
            tap(payload, slot.deadline)

    def _keep(self, context: int, played: Played) -> None:
        self._longest_gap_s = max(self._longest_gap_s, played.longest_gap_s)
        super()._keep(context, played)
