"""The recording of one call: its notice, its beginning, its file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from pathlib import Path

from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.call_facts import CallFacts
from qwen3tts_phone.call_media import CallMedia
from qwen3tts_phone.consent import ConsentPlan, beep
from qwen3tts_phone.record import StereoRecorder
from qwen3tts_phone.record_settings import RecordSettings
from qwen3tts_phone.tracks import CallTracks
from qwen3tts_speech.sound import Sound
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import SpeechError

logger = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often it is looked whether a beep is due."""


class CallRecording:
    """Begun when the far end has heard the notice; closed at the end of the call."""

    def __init__(
        self,
        media: CallMedia,
        clock: Clock,
        facts: CallFacts,
        path_of: Callable[[CallFacts], Path | None],
        settings: RecordSettings,
        start: Callable[[Coroutine[None, None, None], str], None],
    ) -> None:
        self.path: Path | None = None
        """The file; None = nothing is recorded (yet)."""
        self._media = media
        self._clock = clock
        self._facts = facts
        self._path_of = path_of
        self._start = start
        self._plan = ConsentPlan(settings)

    @property
    def needs_notice(self) -> bool:
        """Whether the far end is told before it begins."""
        return bool(self._plan.before_recording)

    def notice(self) -> Coroutine[None, None, None]:
        """Queue what the far end is told; the coroutine then records, to the end of the call.

        All of it is queued at once: what the program says next must not come between the words
        and the beep, or it would not be recorded.
        """
        notice, speaker = self._plan.before_recording, self._media.speaker
        said = speaker.say(notice.text) if speaker is not None and notice.text is not None else None
        return self._record(said, self._queue_beep() if notice.tone else None)

    async def _record(self, said: Utterance | None, tone: Sound | None) -> None:
        try:
            if said is not None:
                await said.spoken()
            if tone is None or not await tone.played():
                logger.warning("call %s is not recorded: its notice was cut", self._facts.call_id)
                return
        except SpeechError as error:
            logger.warning(
                "call %s is not recorded: its notice was not heard: %s",
                self._facts.call_id,
                error,
            )
            return
        self.begin()
        speaker = self._media.speaker
        self._plan.began(self._clock.now())
        while (next_at := self._plan.next_at) is not None and speaker is not None:
            await self._clock.sleep_until(max(next_at, self._clock.now() + LOOK_S))
            if self._plan.due(self._clock.now(), speaking=speaker.speaking):
                await self._beep()

    def begin(self) -> None:
        """Record from now on."""
        payload, sink = self._media.payload, self._media.sink
        if payload is None or sink is None or self.path is not None:
            return
        try:
            path = self._path_of(self._facts)
            if path is None:
                return
            recorder = StereoRecorder(path, rate_hz=payload.sample_hz)
        except OSError as error:  # no reason to hang up on the caller
            logger.error("call %s is not recorded: %s", self._facts.call_id, error)
            return
        self.path = path
        tracks = self._media.ears.tracks = CallTracks(recorder, payload, self._clock.now())
        sink.give(tracks.sent)
        self._start(self._media.follow(), "recording")

    def close(self) -> None:
        """The call is over."""
        if self._media.ears.tracks is not None:
            self._media.ears.tracks.close(self._clock.now())

    async def _beep(self) -> None:
        tone = self._queue_beep()
        if tone is not None:
            await tone.played()

    def _queue_beep(self) -> Sound | None:
        speaker, payload = self._media.speaker, self._media.payload
        if speaker is None or payload is None:
            return None
        return speaker.play(beep(payload.sample_hz), payload.sample_hz)
