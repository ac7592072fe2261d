"""Recordings of one call: notice, stereo tracks, start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.payload import Payload
from qwen3tts_codecs.resample import RateConverter
from qwen3tts_pacer.clock import Clock
from qwen3tts_phone.audio.frames import HeardFrame, OutboundAudio, SentFrame
from qwen3tts_phone.audio.inbound import InboundAudio
from qwen3tts_phone.audio.playout import Playout, PlayoutSettings
from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_phone.errors import CallError
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.records.recording import Recording, validated_path
from qwen3tts_phone.records.store import CallStore
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_speech.line import Speaker
from qwen3tts_speech.sound import Sound
from qwen3tts_wire.errors import SpeechError, log_text

logger = logging.getLogger(__name__)


BEEP_HZ: Final = 1400.0
BEEP_S: Final = 0.2
"""A beep of 1400 Hz and 0.2 s each 15 s is what telephone recorders in North America use."""
BEEP_DBFS: Final = -20.0
EDGE_S: Final = 0.005
"""Raised-cosine edges: no clicks."""
MAX_BEEP_DELAY_S: Final = 5.0
"""Longest wait of a repeated beep for the end of an utterance."""


SNAP_S = 0.01
"""A frame this near to the end of the one before follows it exactly: the clock's own jitter."""
WRITE_DELAY_S = 0.5
"""Delay of the caller's track: frames that a busy process reads late still have their place."""
HOLD_S = 0.4
"""Jitter up to this changes no sample of the caller's speech."""
PLAYOUT = PlayoutSettings(max_delay_s=1.5, hold_s=HOLD_S)
MIN_BEEP_WAIT_S = 0.25
"""Least wait for a beep that is due."""
POLL_INTERVAL_S = 0.1
"""Interval at which recordings read outbound audio."""


def beep(rate_hz: int = 8000) -> NDArray[np.int16]:
    count = round(BEEP_S * rate_hz)
    wave = np.sin(2 * np.pi * BEEP_HZ * np.arange(count) / rate_hz)
    edge = round(EDGE_S * rate_hz)
    rise = 0.5 - 0.5 * np.cos(np.pi * np.arange(edge) / edge)
    wave[:edge] *= rise
    wave[-edge:] *= rise[::-1]
    scaled = wave * 32767 * 10 ** (BEEP_DBFS / 20) * np.sqrt(2)
    samples: NDArray[np.int16] = np.rint(scaled).astype(np.int16)
    return samples


@dataclass(frozen=True, slots=True)
class Notice:
    text: str | None
    """Spoken first; None = nothing is said."""
    tone: bool
    """True if the beep follows."""

    def __bool__(self) -> bool:
        return self.tone or self.text is not None


class ConsentSchedule:
    def __init__(self, settings: RecordSettings) -> None:
        self._every_s = settings.consent_every_s
        self._next: float | None = None
        spoken = settings.consent == "announcement"
        self.before_recording = Notice(
            settings.consent_text if spoken else None, settings.consent != "none"
        )
        """Notice before recording; false where there is no notice."""

    def began(self, now: float) -> None:
        self._next = now + self._every_s if self._every_s else None

    @property
    def next_at(self) -> float | None:
        return self._next

    def due(self, now: float, *, speaking: bool) -> bool:
        """Return whether to beep now, once each time.

        A beep waits for the end of an utterance, up to `MAX_BEEP_DELAY_S`.
        """
        if self._next is None or now < self._next:
            return False
        if speaking and now < self._next + MAX_BEEP_DELAY_S:
            return False
        while self._next <= now:
            self._next += self._every_s
        return True


Samples = NDArray[np.int16]


class RecordingTracks:
    """Both directions on the time axis of a `StereoRecorder`.

    Outbound frames lie where they went out; inbound audio passes a `Playout` with a long constant
    delay, which corrects clock drift in pauses. The rate stays when a codec changes.
    """

    def __init__(self, recorder: StereoRecorder, origin: float) -> None:
        self._recorder = recorder
        self._origin = origin
        self._rate_hz = recorder.rate_hz
        self._agent_end = 0
        self._playout = Playout(recorder.rate_hz, settings=PLAYOUT)
        self._caller_from: int | None = None
        self._converter = RateConverter(recorder.rate_hz)

    @property
    def error(self) -> OSError | None:
        return self._recorder.error

    def sent(self, frame: SentFrame) -> None:
        samples = self._converter.push(frame.samples, frame.rate_hz)
        position = round((frame.at - self._origin) * self._rate_hz)
        if abs(position - self._agent_end) <= SNAP_S * self._rate_hz:
            position = self._agent_end
        if position >= 0:
            self._recorder.agent(samples, position)
            self._agent_end = position + len(samples)

    def heard(self, heard: HeardFrame) -> None:
        self._playout.push(heard)

    def tick(self, now: float) -> None:
        for frame in self._playout.due(now - WRITE_DELAY_S):
            self._put(frame)

    def close(self, now: float) -> None:
        for frame in (*self._playout.due(now), *self._playout.end()):
            if not frame.concealed or frame.at - HOLD_S + frame.duration_s <= now:
                self._put(frame)
        self._recorder.close(end=round((now - self._origin) * self._rate_hz))

    def _put(self, frame: HeardFrame) -> None:
        if self._caller_from is None:
            came_at = frame.at - HOLD_S - self._origin
            self._caller_from = round(came_at * self._rate_hz) - frame.timestamp
        position = self._caller_from + frame.timestamp
        if position >= 0:
            self._recorder.caller(frame.samples, position)


class RecordedCall(Protocol):
    facts: CallFacts
    clock: Clock
    files: CallStore
    inbound: InboundAudio
    outbound: OutboundAudio
    payload: Payload | None
    speaker: Speaker | None
    up: asyncio.Future[None]
    over: asyncio.Event

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


class CallRecordings:
    """Recordings of one call, by the settings and the program.

    None begins before the notice of the settings' ``consent`` was heard.
    """

    def __init__(self, call: RecordedCall) -> None:
        self.automatic: Path | None = None
        """The file that the settings ask for; None = nothing is recorded by them (yet)."""
        self.asked: list[Recording] = []
        """Recordings of the program that have begun."""
        self._call = call
        self._settings = call.files.settings
        self._plan = ConsentSchedule(call.files.settings)
        self._notice: asyncio.Task[bool] | None = None
        self._running: dict[Path, RecordingTracks] = {}
        self._waiting: set[Recording] = set()
        self._asked_for_notice = False
        """True if one waits for the answer that needs the notice."""
        self._following = False
        self._over = False

    # --- by the settings

    def agreed(self) -> None:
        if not (self._plan.before_recording or self._call.over.is_set()):
            self._begin_automatic()

    def answered(self) -> None:
        automatic = bool(self._plan.before_recording) and self._call.files.records_audio
        if automatic or self._asked_for_notice:
            # Synchronously: further speech must not come between the words and the beep, or it
            # would not be recorded.
            notice = self._start_notice()
            if automatic:
                self._call.start(self._begin_when(notice), "recording's notice")

    # --- by the program

    def record(self, path: Path, *, notice: bool) -> Recording:
        path = validated_path(path)
        if any(path == each.path for each in (*self._waiting, *self.asked) if self._lasts(each)):
            raise ValueError(f"path={str(path)!r}: this call is recorded into that file already")
        recording = Recording(path, self._stop, bitrate=self._settings.audio_bitrate)
        call = self._call
        needs_notice = notice and bool(self._plan.before_recording)
        if call.payload is not None and not needs_notice:
            self._begin_asked(recording)
        else:
            self._waiting.add(recording)
            self._asked_for_notice = self._asked_for_notice or needs_notice
            if needs_notice and call.up.done():
                self._start_notice()
            call.start(self._begin_later(recording, needs_notice), "recording")
        return recording

    def close(self, now: float) -> None:
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
        call = self._call
        try:
            path = call.files.path_for(call.facts)
            if path is None:
                return
            self._open(path)
        except OSError as error:  # no reason to hang up on the caller
            logger.error(
                "call %s is not recorded: %s", log_text(call.facts.call_id), log_text(error)
            )
            call.facts.unrecorded = "its file could not be written"
            return
        self.automatic = path

    def _begin_asked(self, recording: Recording) -> None:
        self._open(recording.wav)
        self.asked.append(recording)
        recording.begun(self._call.clock.now())

    async def _begin_when(self, notice: asyncio.Task[bool]) -> None:
        if await asyncio.shield(notice):
            self._begin_automatic()

    async def _begin_later(self, recording: Recording, needs_notice: bool) -> None:
        await asyncio.shield(self._call.up)
        if needs_notice and not await asyncio.shield(self._start_notice()):
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
        call = self._call
        call.outbound.follow()
        call.inbound.fetch()
        call.inbound.untap(tracks.heard)
        call.outbound.remove(tracks.sent)
        tracks.close(call.clock.now())
        if tracks.error is not None:
            recording.failed(tracks.error)

    def _open(self, path: Path) -> None:
        call = self._call
        assert call.payload is not None
        recorder = StereoRecorder(path, rate_hz=call.payload.sample_hz)
        call.outbound.follow()
        call.inbound.fetch()  # what came before is not in it
        self._running[path] = tracks = RecordingTracks(recorder, call.clock.now())
        call.inbound.tap(tracks.heard)
        call.outbound.add(tracks.sent)
        if not self._following:
            self._following = True
            call.start(self._follow(), "recording")

    async def _follow(self) -> None:
        call = self._call
        origin, count = call.clock.now(), 0
        while True:
            count += 1
            await call.clock.sleep_until(origin + count * POLL_INTERVAL_S)
            call.outbound.follow()
            call.inbound.fetch()
            for tracks in self._running.values():
                tracks.tick(call.clock.now())

    # --- the notice

    def _start_notice(self) -> asyncio.Task[bool]:
        if self._notice is None:
            notice, speaker = self._plan.before_recording, self._call.speaker
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
                        self._call.facts.unrecorded = "its notice was cut"
                        logger.warning(
                            "call %s is not recorded: its notice was cut", log_text(self._id)
                        )
                        return False
                except SpeechError as error:
                    self._call.facts.unrecorded = "its notice was not heard"
                    logger.warning(
                        "call %s is not recorded: its notice was not heard: %s",
                        log_text(self._id),
                        log_text(error),
                    )
                    return False
                self._plan.began(self._call.clock.now())
                self._call.start(self._repeat_beep(), "recording's beeps")
                return True

            self._notice = asyncio.create_task(heard(), name=f"notice of {self._id}")
        return self._notice

    @property
    def _id(self) -> str:
        return self._call.facts.call_id

    async def _repeat_beep(self) -> None:
        clock, speaker = self._call.clock, self._call.speaker
        while (next_at := self._plan.next_at) is not None and speaker is not None:
            await clock.sleep_until(max(next_at, clock.now() + MIN_BEEP_WAIT_S))
            if self._plan.due(clock.now(), speaking=speaker.speaking):
                tone = self._queue_beep()
                if tone is not None:
                    await tone.played()

    def _queue_beep(self) -> Sound | None:
        speaker, payload = self._call.speaker, self._call.payload
        if speaker is None or payload is None:
            return None
        return speaker.play(beep(payload.sample_hz), payload.sample_hz)
