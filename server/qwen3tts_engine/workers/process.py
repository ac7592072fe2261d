"""One worker process as its pool sees it.

It works at one job at a time. A turn ends with its job or with a pause; a paused job goes on at its
next turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any

from qwen3tts_engine.playout import PlayoutLead
from qwen3tts_engine.workers.messages import (
    Done,
    Failed,
    Go,
    Note,
    Paused,
    Ready,
    Say,
    Sound,
    Stop,
    from_child,
    to_child,
)
from qwen3tts_wire.child.messages import BadMessage
from qwen3tts_wire.child.messages import Message as ChildMessage
from qwen3tts_wire.child.process import ChildProcess, StartFailed, environment

log = logging.getLogger(__name__)

MOST_SOUND = 8 << 20
"""Bytes of sound that one job may make, all of which wait here if no one reads. A piece of text is
so bounded that it stays below half of it at the slowest speed; a broken worker is not."""
TOGETHER = 16_000
"""Bytes of sound, some 0.36 s: what comes after costs little more to carry than one message of the
worker's (60 ms), so a busy server catches up."""
GRACE_S = 0.25
"""Extra time of a silent worker, in case this process was busy."""
BYTES_PER_S = 44_100
"""Bytes a second of a voice at 22.05 kHz; near enough for other rates."""
UNREAD_S = 2.0
"""Seconds of sound that wait for a reader before a job that pauses gets no turn."""
END_S = 2.0
"""Time limit of a worker's end once its standard input is closed."""


class WorkerState(Enum):
    STARTING = auto()
    IDLE = auto()
    SPEAKING = auto()
    """At a turn."""
    GONE = auto()


class JobOutcome(Enum):
    SAID = auto()
    STOPPED = auto()
    REFUSED = auto()
    """The same job would be refused again."""
    LOST = auto()
    """With its worker."""


class SpeechJob:
    """One job as its reader sees it; a stalled reader holds up no other.

    Args:
        job: its number at its worker.
        stop: cancels it at the worker.
        lead: its context's playout lead, if any.
    """

    def __init__(
        self, job: int, stop: Callable[[SpeechJob], None], lead: PlayoutLead | None = None
    ) -> None:
        self.job = job
        self.lead = lead
        self._stop = stop
        self._sounds: deque[Sound] = deque()
        self._changed = asyncio.Event()
        self._begun = False
        self.bytes = 0
        """Bytes of sound that came."""
        self.unread = 0
        """Bytes of them that were not read."""
        self.paused = False
        """True if it waits for another turn."""
        self.number = 0
        """Order of its pause among all that wait."""
        self.on_read: Callable[[], None] = lambda: None
        """Called when a paused job may have a turn again."""
        self.outcome: JobOutcome | None = None
        """None while it goes on."""
        self.reason = ""
        self.code = ""
        """Code of the SpeechError for which it was refused, or empty."""
        self.remedy = ""

    @property
    def unread_s(self) -> float:
        return self.unread / BYTES_PER_S

    async def next(self) -> Sound | None:
        """Wait for the next sound; None: over (``outcome``)."""
        while not self._sounds:
            if self.outcome is not None:
                return None
            self._changed.clear()
            await self._changed.wait()
        first = self._sounds.popleft()
        pcm, words = [first.pcm], list(first.words)
        size = len(first.pcm)
        most = TOGETHER if self._begun else 0
        self._begun = True
        while self._sounds and size < most:
            more = self._sounds.popleft()
            pcm.append(more.pcm)
            words += more.words
            size += len(more.pcm)
        waited = self.unread_s >= UNREAD_S
        self.unread -= size
        if waited and self.unread_s < UNREAD_S:
            self.on_read()
        return Sound(first.job, b"".join(pcm), tuple(words))

    def stop(self) -> None:
        self._sounds.clear()
        if self.outcome is None:
            self._stop(self)
            self.end(JobOutcome.STOPPED)

    def add(self, sound: Sound) -> None:
        self._sounds.append(sound)
        self.bytes += len(sound.pcm)
        self.unread += len(sound.pcm)
        self._changed.set()

    def end(self, outcome: JobOutcome, reason: str = "") -> None:
        self.paused = False
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason
            self._changed.set()


class Worker:
    """One worker process.

    Args:
        command: starts it.
        stall_s: seconds of silence within a turn after which it is killed.
        on_idle: called when it can take a turn.
        on_gone: called when it ended; never after a failed ``start``.
        on_note: receives the facts of its notes.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stall_s: float,
        on_idle: Callable[[Worker], None],
        on_gone: Callable[[Worker], None],
        on_note: Callable[[Mapping[str, Any]], None] = lambda facts: None,
    ) -> None:
        self._stall_s = stall_s
        self._on_note = on_note
        self._on_idle = on_idle
        self._on_gone = on_gone
        self._child = ChildProcess(
            command,
            environment("qwen3tts_engine"),
            on_message=self._take,
            on_end=self._ended,
            name="speech worker",
            end_s=END_S,
        )
        self._refused = False
        self.state = WorkerState.STARTING
        self._job = 0
        self._turn = 0
        """The job whose turn it is, or was last."""
        self.jobs: dict[int, SpeechJob] = {}
        """Jobs that are neither over nor stopped, by their numbers."""
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def idle(self) -> bool:
        """True if it can take a turn: not one that died and whose end was not read yet."""
        return self.state is WorkerState.IDLE and not self._child.exited

    async def start(self, timeout_s: float) -> Ready:
        try:
            facts = (await self._child.start(timeout_s)).get("facts")
            if not isinstance(facts, dict):
                self._refused = True
                self._child.kill("it has no facts")
                await self._child.close()
                raise StartFailed("a worker was ready without its facts")
        finally:
            self.state = WorkerState.GONE if self._child.ended else WorkerState.IDLE
        if self.state is WorkerState.IDLE:
            self._on_idle(self)
        return Ready(facts)

    def say(self, say: Say, lead: PlayoutLead | None = None) -> SpeechJob:
        self._job = (self._job + 1) & 0xFFFFFFFF
        speech = SpeechJob(self._job, self._stop, lead)
        self._begin(Say(speech.job, say.text, say.options), speech)
        self.jobs[speech.job] = speech
        return speech

    def go(self, speech: SpeechJob) -> None:
        self._begin(Go(speech.job), speech)

    def _begin(self, order: Say | Go, speech: SpeechJob) -> None:
        if self.state is not WorkerState.IDLE:
            raise RuntimeError(f"a worker cannot take a turn while {self.state.name}")
        self.state = WorkerState.SPEAKING
        self._turn = speech.job
        speech.paused = False
        self._child.send(to_child(order))
        loop = asyncio.get_running_loop()
        self._heard_at = loop.time()
        self._timer = loop.call_later(self._stall_s, self._watch, False)

    async def close(self) -> None:
        await self._child.close()

    def _stop(self, speech: SpeechJob) -> None:
        if self.jobs.pop(speech.job, None) is not None:
            self._child.send(to_child(Stop(speech.job)))

    def _watch(self, warned: bool) -> None:
        loop = asyncio.get_running_loop()
        silent = loop.time() - self._heard_at
        if silent < self._stall_s:
            self._timer = loop.call_later(self._stall_s - silent, self._watch, False)
        elif not warned:
            self._timer = loop.call_later(GRACE_S, self._watch, True)
        else:
            self._child.kill(f"it said nothing for {silent:.1f} s")

    def _take(self, received: ChildMessage) -> None:
        message = from_child(received)
        self._heard_at = asyncio.get_running_loop().time()
        if isinstance(message, Note):
            self._on_note(message.facts)
            return
        if (
            not isinstance(message, (Sound, Paused, Done, Failed))
            or message.job != self._turn
            or self.state is not WorkerState.SPEAKING
        ):
            raise BadMessage(f"{type(message).__name__} for another job")
        speech = self.jobs.get(self._turn)
        if isinstance(message, Sound):
            if speech is not None:
                speech.add(message)
                if speech.bytes > MOST_SOUND:
                    self._child.kill(f"it made more than {MOST_SOUND} bytes of sound of one job")
            return
        if isinstance(message, Paused):
            if speech is not None:
                speech.paused = True
        elif speech is not None:
            del self.jobs[self._turn]
            if isinstance(message, Failed):
                speech.code, speech.remedy = message.code, message.remedy
                speech.end(JobOutcome.REFUSED, message.reason)
            else:
                # A worker that is ending breaks off by itself.
                speech.end(
                    JobOutcome.SAID if message.to_the_end else JobOutcome.LOST, "it broke off"
                )
        self._cancel_timer()
        self.state = WorkerState.IDLE
        self._on_idle(self)

    def _ended(self) -> None:
        self.state = WorkerState.GONE
        self._cancel_timer()
        for speech in self.jobs.values():
            speech.end(JobOutcome.LOST, self._child.reason)
        self.jobs.clear()
        if self._child.lost and not self._refused:
            log.debug("speech worker %d is gone: %s", self.pid, self._child.reason)
            self._on_gone(self)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
