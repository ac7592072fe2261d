"""One utterance in a call's ring: what of it waits there, and what has gone out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from qwen3tts_codecs.payload import Payload
from qwen3tts_pacer.frame import Frame
from qwen3tts_pacer.memory import ContextSent
from qwen3tts_phone.media.leg import MediaLeg
from qwen3tts_speech.remaking import Remaking
from qwen3tts_speech.sink import Played


class SinkContext:
    """An utterance of the speaker, as contexts of the leg: its parts."""

    def __init__(self, number: int, key: str, leg: MediaLeg, ptime_ms: int) -> None:
        self.number = number
        self.parts: list[int] = []
        """The leg's names for it, in order; the last one is written to."""
        self.queued: deque[Frame] = deque()
        """Frames in the ring that are not known to have gone out."""
        self.over = asyncio.Event()
        """Set when nothing of it will go out any more."""
        self.finished = False
        """Whether the speaker has written its last frame."""
        self.complete = False
        """Whether all of it has gone out."""
        self.cut = False
        """Whether an interruption took it."""
        self.lost = 0
        """Frames that an interruption took before they were in the ring."""
        self._ptime_ms = ptime_ms
        self._key = key
        self._leg = leg
        self._gone = 0
        """Frames of the last part that are known to have gone out."""
        self._at: float | None = None  # the slot of the last of them, seconds
        self._starved = 0  # slots of silence among them
        self._last: Frame | None = None
        """The one that went out last."""
        self._part_finished = False

    @property
    def part(self) -> int:
        """The leg's context that is written to."""
        return self.parts[-1]

    def begin(self, part: int, ptime_ms: int) -> None:
        """The next context of the leg is its."""
        self._leg.begin(part, key=self._key)
        self.parts.append(part)
        self.queued.clear()
        self._ptime_ms = ptime_ms
        self._gone = self._starved = 0
        self._at = None
        self._part_finished = False

    def write(self, frames: Sequence[Frame]) -> int:
        """Queue frames in the ring; how many were accepted."""
        if not frames:
            return 0
        if frames[0].context != self.part:
            frames = [frame._replace(context=self.part) for frame in frames]
        accepted = self._leg.write(frames)
        self.queued.extend(frames[:accepted])
        return accepted

    def finish_part(self) -> None:
        """No more frames of it follow."""
        if not self._part_finished:
            self._part_finished = True
            self._leg.finish(self.part)

    def follow(self) -> list[tuple[bytes, float]]:
        """What has gone out since the last time: payload, and the slot it was for (monotonic, s).

        The packet itself may have left a little later; where it is heard, and what lies beside it
        in a recording, is told by its timestamp.
        """
        sent = self._leg.sent(self.part)
        if sent is None:
            return []
        new = min(sent.frames - self._gone, len(self.queued))
        last = self._slot_of(sent)
        gone = []
        for index in range(new):
            self._last = self.queued.popleft()
            gone.append((self._last.payload, last - (new - 1 - index) * self._ptime_ms / 1000))
        self._gone, self._starved, self._at = sent.frames, sent.starved_slots, last
        return gone

    def _slot_of(self, sent: ContextSent) -> float:
        """When the frame that was sent last should have gone out: slots after the one before."""
        at = sent.last_ns / 1e9
        if self._at is None:
            return at
        ptime_s = self._ptime_ms / 1000
        slots = sent.frames - self._gone + sent.starved_slots - self._starved
        due = self._at + slots * ptime_s
        # More than a slot off: it was held up by a hold, or by keys.
        return due if abs(at - due) < ptime_s else at

    def made_anew(self, old: Payload, new: Payload, ptime_ms: int) -> Remaking:
        """What waits in the ring, in another format."""
        return Remaking(list(self.queued), old, new, self._ptime_ms, ptime_ms, self._last)

    def position(self) -> int:
        """Samples of it at the far end's ear by now."""
        return max((self._leg.position(part) for part in self.parts), default=0)

    def played(self, dropped: int = 0) -> Played:
        """What is known of it, all parts together."""
        sent = [each for each in map(self._leg.sent, self.parts) if each is not None]
        if not sent:
            return Played(position=0, dropped=dropped)
        return Played(
            position=max(each.end for each in sent),
            dropped=dropped,
            first_at=_seconds(sent[0].first_ns),
            first_audible_at=_first_audible(sent),
            last_at=_seconds(sent[-1].last_ns),
            starvations=sum(each.starvations for each in sent),
            starved_s=sum(each.starved_slots for each in sent) * self._ptime_ms / 1000,
            longest_gap_s=max(each.longest_slots for each in sent) * self._ptime_ms / 1000,
        )


def _first_audible(sent: Sequence[ContextSent]) -> float | None:
    return next((at for each in sent if (at := _seconds(each.audible_ns)) is not None), None)


def _seconds(at_ns: int) -> float | None:
    return at_ns / 1e9 if at_ns else None
