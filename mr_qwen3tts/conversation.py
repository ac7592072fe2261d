"""Conversation with one caller: speech, stops, waits.

Partials, commands, hooks, flags and the SIP service's False all end here; every stop is the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any
from weakref import WeakSet

from qwen3tts_pacer.clock import Clock
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.line import ChooseVoice, Speaker, Spoken, Utterance
from qwen3tts_text.plain_text import PlainText
from qwen3tts_wire.errors import ConnectionLost, SpeechError

from .host_turn import InterruptedTurn, cancelled, finishing
from .partials import Growth
from .reply import Deltas, Reply, SpeechGate, heard_chars, left_s, unheard_s
from .settings import Settings

log = logging.getLogger(__name__)

WATCH_S = 0.01
"""Polling interval of the host's flags."""
SLICE_S = 0.05
"""Polling interval of a waiting command."""
OVER_KEPT = 64
"""Finished commands, to recognise late partials."""

Ended = Callable[[Reply, Utterance, SpeechError | None], None]


class Conversation:
    """Speech to one caller.

    Args:
        log_id: call name in the host.
        clock: of deadlines.
        speaker: returns the speaker, at each reply.
        halted: whether the SIP side refuses audio.
        ended: gets each ended utterance and outcome.
        hold_open: gets whether more may follow: the audio response stays open.
        waiting: called where a server has text and stays silent.
    """

    def __init__(
        self,
        log_id: str,
        *,
        clock: Clock,
        speaker: Callable[[], Speaker],
        halted: Callable[[Any], Awaitable[bool]],
        ended: Ended,
        count: Callable[[str], None] = lambda _: None,
        hold_open: Callable[[bool], None] = lambda _: None,
        waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.log_id = log_id
        self.used_at = clock.now()
        """Time of last speech or stop."""
        self.last: Spoken | None = None
        """Last outcome, and of all stopped with it."""
        self._clock = clock
        self._speaker = speaker
        self._halted = halted
        self._ended = ended
        self._count = count
        self._hold_open = hold_open
        self._waiting = waiting
        self._writing: Reply | None = None
        """Reply under growth."""
        self._live: list[Reply] = []
        self._turn: list[Reply] = []
        """Last turn's replies."""
        self._told: Reply | None = None
        """End of the turn that `cut_chars` reported."""
        self._over: OrderedDict[str, None] = OrderedDict()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._watching: asyncio.Task[None] | None = None
        self._following: set[asyncio.Task[None]] = set()
        self._speakers: WeakSet[Speaker] = WeakSet()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._before: tuple[asyncio.Task[Any] | None, str] = (None, "")
        """Turn and text of the last command, which the host may repeat."""
        self._said: tuple[asyncio.Task[Any] | None, str] = (None, "")
        """Turn and text of a command that never came."""
        self._commands = 0
        """Running commands."""
        self._stops = 0
        """Number of stops."""
        self._last_stop = 0
        """`_stops` when `last` ended."""
        self._interrupted = InterruptedTurn()
        self._gate = SpeechGate()
        self._waited_for: str | None = None
        """Command that has waited for playback."""

    @property
    def speaking(self) -> bool:
        return bool(self._live)

    @property
    def busy(self) -> bool:
        return bool(self._live or self._following or self._commands)

    @property
    def unplayed_s(self) -> float:
        """Ready, unplayed audio, seconds."""
        return sum(map(unheard_s, self._live))

    # --- what the host says

    async def partial(
        self,
        cmd_id: str | None,
        words: str,
        context: Any,
        choose: ChooseVoice,
        settings: Settings,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        """Send the text so far; ``task``: the host's model reader."""
        self.used_at = self._clock.now()
        if self._is_over(cmd_id):
            self._count("stale_partials")
            return
        if self._gate.blocks(begun=bool(self._live)):
            return  # a later one, or the command, brings the same words
        reply = self._growing(cmd_id, task)
        if reply is None:
            if not words or await self._unwanted(cmd_id, context):
                return
            reply = self._growing(cmd_id, task)  # another turn may have begun meanwhile
        if reply is None:
            reply = self._writing = self._new(cmd_id, context, choose, settings, task)
        reply.changed_at = self._clock.now()
        reply.update(words)
        self._say_held()

    async def speak(
        self,
        cmd_id: str | None,
        words: str,
        context: Any,
        choose: ChooseVoice,
        settings: Settings,
        task: asyncio.Task[Any] | None = None,
    ) -> bool:
        """Say the rest and wait until nearly all is played.

        ``cmd_id`` is None from another plugin.

        Returns:
            Whether there was text; ``ended`` gets the outcome.
        """
        self.used_at = self._clock.now()
        self._commands += 1
        reply = None
        try:
            reply = await self._complete(cmd_id, words, context, choose, settings, task)
            if reply is None:
                return True
            if not reply.pending:
                self._drop(reply)
                return not reply.silent
            await self._nearly_heard(reply, settings.return_ahead_ms / 1000)
        except asyncio.CancelledError:
            if reply is None or not reply.over.is_set():
                self.stop("the command was cancelled")
            raise
        finally:
            self._commands -= 1
            self._say_held()
        return True

    async def _complete(
        self,
        cmd_id: str | None,
        words: str,
        context: Any,
        choose: ChooseVoice,
        settings: Settings,
        task: asyncio.Task[Any] | None,
    ) -> Reply | None:
        while self._gate.blocks(begun=bool(self._live)):
            await self._gate.wait()
        if self._is_over(cmd_id):
            return None  # stopped while its partials came, or said already
        reply = self._writing
        if reply is not None and reply.cmd_id != cmd_id:
            if cmd_id is not None:
                self._leave(reply, task)
            else:
                reply.pause()  # what was given is said, then these words, and then the rest
            reply = None
        if reply is None:
            if words.strip() and await self._unwanted(cmd_id, context):
                return None
            reply = self._new(cmd_id, context, choose, settings, task)
        if self._writing is reply:
            self._writing = None
        self._forget(cmd_id)  # whatever partial still comes is stale
        if context is not reply.context:
            reply.also = context
        await reply.finish_gently(words)
        self._before, self._said = (task, words), (None, "")
        return reply

    async def _nearly_heard(self, reply: Reply, ahead_s: float) -> None:
        while not reply.over.is_set():
            if self._gate.held:
                await _first_of(self._gate.wait(), reply.over.wait())
                continue
            last = reply.utterances[-1]
            if not last.written.is_set():
                # A stopped one may wait for the server's answer; its speaker does not.
                await _first_of(last.written.wait(), reply.over.wait())
                continue
            early_s = self._left_s(reply) - ahead_s
            if early_s <= 0 and last.record.end_reason and last in reply.pending:
                await asyncio.sleep(0)  # it has just ended, and may be said once more
                continue
            if early_s <= 0:
                break
            # In slices, as it may be stopped meanwhile.
            await self._clock.sleep_until(self._clock.now() + min(early_s, SLICE_S))

    def _left_s(self, reply: Reply) -> float:
        at = self._live.index(reply) if reply in self._live else -1
        return sum(map(unheard_s, self._live[: at + 1]))

    async def other(
        self, cmd_id: str | None, task: asyncio.Task[Any] | None, wait_s: float | None
    ) -> None:
        """Note another command; ``wait_s``: wait once for playback."""
        if self._writing is not None:
            self._leave(self._writing, task, whole=True)
        again = cmd_id is not None and cmd_id == self._waited_for
        if wait_s is None or again or not self._live:
            return
        try:
            if not await self.finished(wait_s):
                self._count("barrier_timeouts")
        except asyncio.CancelledError:
            self.stop("the command that waited was cancelled")
            raise
        self._waited_for = cmd_id

    async def finished(self, most_s: float) -> bool:
        """Wait for playback; False after ``most_s``."""
        await _first_of(self._quiet.wait(), self._sleep(most_s))
        return not self._live

    def stop(self, why: str) -> bool:
        """Stop synchronously; False: nothing to stop."""
        self.used_at = self._clock.now()
        self._stops += 1
        self._gate.open()
        stopped, self._live = self._live, []
        self._writing = None
        for reply in stopped:
            reply.over.set()
            self._forget(reply.cmd_id)
        for speaker in list(self._speakers):
            speaker.interrupt()
        for reply in stopped:
            reply.pause()
        self._quiet.set()
        if stopped:
            self._count("stops")
            log.info("%s: stopped: %s", self.log_id, why)
        self._say_held()
        return bool(stopped)

    def hold(self, *, cut_in: bool) -> None:
        """Hold new speech until `go_on` or `stop`; ``cut_in``: current too."""
        self._gate.hush()
        if not cut_in:
            return
        self._gate.hold()
        for speaker in list(self._speakers):
            speaker.interrupt()
        for reply in self._live:
            reply.pause()

    def go_on(self) -> None:
        """Resume at the first unheard word."""
        if self._gate.open():
            for reply in list(self._live):
                reply.go_on()
            for reply in list(self._live):
                if reply.complete and not reply.pending:
                    self._drop(reply)

    def answered(self) -> bool:
        """Drop a finished turn's rest: the caller answered."""
        if not self._live or any(each.task is None or not each.task.done() for each in self._live):
            return False
        return self.stop("the caller has answered")

    def interrupt(self, context: Any) -> bool:
        """Stop the turn with its further commands."""
        self._interrupted.note(context)
        return self.stop("the host's on_interrupt")

    def heard_chars(self) -> int:
        return sum(map(heard_chars, self._turn))

    def heard_text(self) -> str:
        return "".join(each.outcome().heard for reply in self._turn for each in reply.utterances)

    def cut_chars(self) -> int | None:
        """Return the heard characters of a cut turn, once."""
        if not self._turn or self._turn[-1] is self._told:
            return None
        said = [
            each for reply in self._turn for each in reply.utterances if each not in reply.continued
        ]
        if not any(each.outcome().interrupted for each in said):
            return None
        self._told = self._turn[-1]
        return self.heard_chars()

    async def close(self) -> None:
        """Stop and settle."""
        self.stop("the conversation is over")
        tasks = [*self._following, *([self._watching] if self._watching is not None else [])]
        if self._watching is not None:
            self._watching.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)

    # --- inside

    def _new(
        self,
        cmd_id: str | None,
        context: Any,
        choose: ChooseVoice,
        settings: Settings,
        task: asyncio.Task[Any] | None,
    ) -> Reply:
        speaker = self._speaker()
        self._speakers.add(speaker)

        def begin(deltas: Deltas) -> Utterance:
            utterance = speaker.say(deltas, choose)
            reply.pending.add(utterance)
            following = asyncio.create_task(self._follow(reply, utterance))
            self._following.add(following)
            following.add_done_callback(self._following.discard)
            return utterance

        before, said = self._before, self._said
        reply = Reply(
            cmd_id,
            context,
            begin,
            choose,
            growth=Growth(
                before=before[1] if task is not None and before[0] is task else "",
                said=said[1] if task is not None and said[0] is task else "",
            ),
            task=task,
            plain=PlainText() if settings.markup else None,
            stall_s=settings.partial_stall_ms / 1000,
            wait_s=settings.wait_ms / 1000,
            deaf=cmd_id is None and finishing(context),
            changed_at=self._clock.now(),
        )
        if task is not None and task not in self._tasks:
            self._tasks.add(task)
            task.add_done_callback(self._turn_over)
        if cmd_id is not None:  # else they are no words of the turn's
            if task is None or not self._turn or self._turn[-1].task is not task:
                self._turn.clear()
            self._turn.append(reply)
        self._live.append(reply)
        self._quiet.clear()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch(), name="qwen3tts: the host's flags")
        return reply

    async def _unwanted(self, cmd_id: str | None, context: Any) -> bool:
        stops = self._stops
        # Another plugin's words, which have no command, are not the turn's that was cancelled.
        of_turn = cmd_id is not None
        if (
            (of_turn and (finishing(context) or self._interrupted.goes_on(context)))
            or await self._halted(context)
            or self._stops != stops  # stopped while the line was asked
        ):
            self._count("halted")
            self._forget(cmd_id)
            return True
        return self._is_over(cmd_id)

    async def _follow(self, reply: Reply, utterance: Utterance) -> None:
        error: SpeechError | None = None
        try:
            await utterance.spoken()
        except SpeechError as failure:
            error = failure
        except Exception as failure:
            # A sink or a choice of voice broke: the call goes on.
            log.exception("%s: an utterance broke", self.log_id)
            error = SpeechError(f"{type(failure).__name__}: {failure}")
        if self._gate.held and error is None and not reply.over.is_set():
            await self._gate.wait()  # it was stopped, and may go on
        reply.pending.discard(utterance)
        self._remember(utterance.outcome())
        self.used_at = self._clock.now()
        if error is not None and self._unheard(reply, utterance, error) and reply.again(utterance):
            self._count("retries")
        elif error is not None and not reply.complete:
            # What still comes would begin in the middle of a sentence.
            self._forget(reply.cmd_id)
            self._end_text(reply)
        elif reply.complete and not reply.pending:
            self._drop(reply)
        elif not reply.complete and reply.utterances[-1] is utterance:
            reply.pause()  # the server ended it: what still comes is said by another one
        self._ended(reply, utterance, error)

    def _remember(self, outcome: Spoken) -> None:
        together = outcome.interrupted and self._last_stop == self._stops
        if together and self.last is not None and self.last.interrupted:
            first, then = self.last, outcome
            if int(then.record.context) < int(first.record.context):
                first, then = then, first
            heard_of = then if then.heard else first
            outcome = replace(
                heard_of,
                heard=first.heard + then.heard,
                remaining=first.remaining + then.remaining,
            )
        self.last, self._last_stop = outcome, self._stops

    @staticmethod
    def _unheard(reply: Reply, utterance: Utterance, error: SpeechError) -> bool:
        record = utterance.record
        return (
            isinstance(error, ConnectionLost)
            and not reply.over.is_set()
            and not record.generated_samples
            and Mark.REQUEST_SENT in record.marks
        )

    def _end_text(self, reply: Reply) -> None:
        if self._writing is reply:
            self._writing = None
        reply.complete = True
        reply.pause()
        if reply.pending:
            self._say_held()
        else:
            self._drop(reply)

    def _drop(self, reply: Reply) -> None:
        reply.over.set()
        if reply in self._live:
            self._live.remove(reply)
        if self._writing is reply:
            self._writing = None
        if not self._live:
            self._quiet.set()
        self._say_held()

    def _growing(self, cmd_id: str | None, task: asyncio.Task[Any] | None) -> Reply | None:
        reply = self._writing
        if reply is not None and reply.cmd_id != cmd_id:
            self._leave(reply, task)
            return None
        return reply

    def _leave(
        self, writing: Reply, task: asyncio.Task[Any] | None, *, whole: bool = False
    ) -> None:
        if task is not None and writing.task is task:
            # The host could not read to its end what the model had written, in this same turn. It
            # will ask the model again, which writes the same: that goes on after what was said.
            self._break_off(writing, whole=whole)
        elif writing.silent:
            self._drop(writing)
        else:
            self._count("abandoned")
            self.stop("its turn is over, and the command never ran")

    def _break_off(self, writing: Reply, *, whole: bool) -> None:
        """Finish a reply without its command.

        ``whole``: complete text; else the model rewrites from the cut word.
        """
        self._count("unfinished")
        self._forget(writing.cmd_id)
        earlier = self._said[1] if self._said[0] is writing.task else ""
        if whole:
            writing.finish(writing.growth.shown)
        self._said = (writing.task, earlier + writing.growth.given)
        self._end_text(writing)

    def _turn_over(self, task: asyncio.Task[Any]) -> None:
        mine = [reply for reply in self._live if reply.task is task]
        if not mine:
            return
        if task.cancelled() or any(map(_cancelled, mine)):
            self.stop("the turn was cancelled")
        elif (writing := self._writing) is not None and writing.task is task:
            if finishing(writing.context):
                self.stop("the turn was ended")
                return
            self._break_off(writing, whole=True)

    async def _watch(self) -> None:
        while self._live:
            await self._sleep(WATCH_S)
            self._console()
            writing = self._writing
            if any(map(_cancelled, self._live)) or (
                writing is not None and finishing(writing.context)
            ):
                self.stop("the host cancels the turn")
            elif writing is not None and self._clock.now() - writing.changed_at > writing.stall_s:
                writing.pause()

    def _console(self) -> None:
        for reply in self._live:
            if reply.consoled or reply.silent or any(map(left_s, reply.utterances)):
                continue
            record = reply.utterances[0].record
            sent_at = record.marks.get(Mark.REQUEST_SENT)
            if record.generated_samples:
                reply.consoled = True
            elif sent_at is not None and self._clock.now() - sent_at > reply.wait_s:
                reply.consoled = True
                self._waiting()

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep_until(self._clock.now() + seconds)

    def _forget(self, cmd_id: str | None) -> None:
        if cmd_id is not None:
            self._over[cmd_id] = None
            while len(self._over) > OVER_KEPT:
                self._over.popitem(last=False)

    def _is_over(self, cmd_id: str | None) -> bool:
        return cmd_id is not None and cmd_id in self._over

    def _say_held(self) -> None:
        self._hold_open(self._writing is not None or self._commands > 0)


def _cancelled(reply: Reply) -> bool:
    return not reply.deaf and (cancelled(reply.context) or cancelled(reply.also))


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.create_task(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
