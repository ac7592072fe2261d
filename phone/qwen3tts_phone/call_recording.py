"""The recordings of one call: the notice that comes first, their beginning, their files."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_phone.consent import ConsentPlan, beep
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.log_text import log_text
from qwen3tts_phone.record import StereoRecorder
from qwen3tts_phone.recording import Recording, checked
from qwen3tts_phone.tracks import CallTracks
from qwen3tts_speech.sound import Sound
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call_body import CallBody

logger = logging.getLogger(__name__)

LOOK_S = 0.25
"""How often it is looked whether a beep is due."""
FOLLOW_S = 0.1
"""How often a recording looks at what has been sent."""


class CallRecordings:
    """The one that the settings ask for, and those that the program begins.

    None begins before the far end has heard the notice that the settings' ``consent`` asks for.
    """

    def __init__(self, body: CallBody) -> None:
        self.automatic: Path | None = None
        """The file that the settings ask for; None = nothing is recorded by them (yet)."""
        self.asked: list[Recording] = []
        """Those of the program that have begun."""
        self._body = body
        self._settings = body.files.settings
        self._plan = ConsentPlan(body.files.settings)
        self._told: asyncio.Task[bool] | None = None
        self._running: dict[Path, CallTracks] = {}
        self._waiting: set[Recording] = set()
        self._asked_for_notice = False
        """Whether one waits for the answer that needs the notice."""
        self._following = False
        self._over = False

    # --- by the settings

    def agreed(self) -> None:
        """The line is there: what needs no notice begins."""
        if not (self._plan.before_recording or self._body.over.is_set()):
            self._begin_automatic()

    def answered(self) -> None:
        """The far end can hear the notice."""
        automatic = bool(self._plan.before_recording) and self._body.files.records_audio
        if automatic or self._asked_for_notice:
            # At once: what the program says next must not come between the words and the beep, or
            # it would not be recorded.
            told = self._tell()
            if automatic:
                self._body.start(self._begin_when(told), "recording's notice")

    # --- by the program

    def record(self, path: Path, *, notice: bool) -> Recording:
        """Begin one more; see `Call.record`."""
        path = checked(path)
        if any(path == each.path for each in (*self._waiting, *self.asked) if self._lasts(each)):
            raise ValueError(f"path={str(path)!r}: this call is recorded into that file already")
        recording = Recording(path, self._stop, bitrate=self._settings.audio_bitrate)
        body = self._body
        needs_notice = notice and bool(self._plan.before_recording)
        if body.payload is not None and not needs_notice:
            self._begin_asked(recording)
        else:
            self._waiting.add(recording)
            self._asked_for_notice = self._asked_for_notice or needs_notice
            if needs_notice and body.up.done():
                self._tell()
            body.start(self._begin_later(recording, needs_notice), "recording")
        return recording

    def close(self, now: float) -> None:
        """The call is over."""
        self._over = True
        for tracks in self._running.values():
            tracks.close(now)
        for each in self._waiting:
            each.failed(CallError("Nothing was recorded: the call ended before that."))
        self._waiting.clear()

    # --- inside

    def _lasts(self, recording: Recording) -> bool:
        return recording in self._waiting or recording.wav in self._running

    def _begin_automatic(self) -> None:
        if self.automatic is not None:
            return
        body = self._body
        try:
            path = body.files.path_for(body.facts)
            if path is None:
                return
            self._open(path)
        except OSError as error:  # no reason to hang up on the caller
            logger.error(
                "call %s is not recorded: %s", log_text(body.facts.call_id), log_text(error)
            )
            body.facts.unrecorded = "its file could not be written"
            return
        self.automatic = path

    def _begin_asked(self, recording: Recording) -> None:
        self._open(recording.wav)
        self.asked.append(recording)
        recording.begun(self._body.clock.now())

    async def _begin_when(self, told: asyncio.Task[bool]) -> None:
        if await asyncio.shield(told):
            self._begin_automatic()

    async def _begin_later(self, recording: Recording, needs_notice: bool) -> None:
        """When the call is answered, and the notice was heard where one is needed."""
        await asyncio.shield(self._body.up)
        if needs_notice and not await asyncio.shield(self._tell()):
            error = CallError("Nothing was recorded: the notice was not heard to its end.")
            recording.failed(error)
        elif recording in self._waiting:
            try:
                self._begin_asked(recording)
            except OSError as error:
                recording.failed(error)
        self._waiting.discard(recording)

    def _stop(self, recording: Recording) -> None:
        if recording in self._waiting:
            self._waiting.discard(recording)
            recording.failed(
                CallError(
                    f"Nothing was recorded into {recording.path.name}: it was stopped before it "
                    "had begun.",
                    remedy="Await the recording before it is stopped.",
                )
            )
        tracks = self._running.pop(recording.wav, None)
        if tracks is None or self._over:
            return
        body = self._body
        body.sent.follow()
        body.ears.fetch()
        body.ears.untap(tracks.heard)
        body.sent.remove(tracks.sent)
        tracks.close(body.clock.now())
        if tracks.error is not None:
            recording.failed(tracks.error)

    def _open(self, path: Path) -> None:
        """Record into this file from now on; raises OSError."""
        body = self._body
        assert body.payload is not None
        recorder = StereoRecorder(path, rate_hz=body.payload.sample_hz)
        body.sent.follow()
        body.ears.fetch()  # what came before is not in it
        self._running[path] = tracks = CallTracks(recorder, body.clock.now())
        body.ears.tap(tracks.heard)
        body.sent.add(tracks.sent)
        if not self._following:
            self._following = True
            body.start(self._follow(), "recording")

    async def _follow(self) -> None:
        """Look at what has been sent, and write what is due, to the end."""
        body = self._body
        origin, count = body.clock.now(), 0
        while True:
            count += 1
            await body.clock.sleep_until(origin + count * FOLLOW_S)
            body.sent.follow()
            body.ears.fetch()
            for tracks in self._running.values():
                tracks.tick(body.clock.now())

    # --- the notice

    def _tell(self) -> asyncio.Task[bool]:
        """Queue what the far end is told, once a call; whether it was heard."""
        if self._told is None:
            notice, speaker = self._plan.before_recording, self._body.speaker
            said = (
                speaker.say(notice.text)
                if speaker is not None and notice.text is not None
                else None
            )
            tone = self._queue_beep() if notice.tone else None

            async def heard() -> bool:
                try:
                    if said is not None:
                        await said.spoken()
                    if tone is None or not await tone.played():
                        self._body.facts.unrecorded = "its notice was cut"
                        logger.warning(
                            "call %s is not recorded: its notice was cut", log_text(self._id)
                        )
                        return False
                except SpeechError as error:
                    self._body.facts.unrecorded = "its notice was not heard"
                    logger.warning(
                        "call %s is not recorded: its notice was not heard: %s",
                        log_text(self._id),
                        log_text(error),
                    )
                    return False
                self._plan.began(self._body.clock.now())
                self._body.start(self._remind(), "recording's beeps")
                return True

            self._told = asyncio.create_task(heard(), name=f"notice of {self._id}")
        return self._told

    @property
    def _id(self) -> str:
        return self._body.facts.call_id

    async def _remind(self) -> None:
        """The beep again, as often as the settings ask for."""
        clock, speaker = self._body.clock, self._body.speaker
        while (next_at := self._plan.next_at) is not None and speaker is not None:
            await clock.sleep_until(max(next_at, clock.now() + LOOK_S))
            if self._plan.due(clock.now(), speaking=speaker.speaking):
                tone = self._queue_beep()
                if tone is not None:
                    await tone.played()

    def _queue_beep(self) -> Sound | None:
        speaker, payload = self._body.speaker, self._body.payload
        if speaker is None or payload is None:
            return None
        return speaker.play(beep(payload.sample_hz), payload.sample_hz)
