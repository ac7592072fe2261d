"""One caller: what is being said, what stops it, and who waits for its end.

The host speaks to it in four voices: partial commands while the model writes, the command itself
when a text is complete, hooks and flags when the caller or the user stops it, and the SIP service's
False for a frame that it does not want. All of them end here, and a stop is the same whoever asks.
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
"""How often the host's flags are looked at while something is being said."""
SLICE_S = 0.05
"""Longest nap of a command that waits for its sound: so soon it notices that it was stopped."""
OVER_KEPT = 64
"""Commands remembered, so that their late partials are known for what they are."""

Ended = Callable[[Reply, Utterance, SpeechError | None], None]


class Conversation:
    """What one caller hears.

    Args:
        log_id: the call's name in the host.
        clock: whose time deadlines are in.
        speaker: the speaker to use now; asked for each reply, as a call may have begun meanwhile.
        halted: whether the SIP side wants no sound now.
        ended: told of each utterance that has ended, and how.
        hold_open: told whether more may follow soon, so that the audio response stays open.
        waiting: told where a server has the words and no sound of them has come for long.
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
        """When something was last said or stopped, seconds of the clock."""
        self.last: Spoken | None = None
        """What became of the utterance that ended last; of all that were stopped with it."""
        self._clock = clock
        self._speaker = speaker
        self._halted = halted
        self._ended = ended
        self._count = count
        self._hold_open = hold_open
        self._waiting = waiting
        self._writing: Reply | None = None
        """The reply whose text still grows."""
        self._live: list[Reply] = []
        self._turn: list[Reply] = []
        """All that the last turn said."""
        self._told: Reply | None = None
        """The end of the last turn of which `cut_chars` was told."""
        self._over: OrderedDict[str, None] = OrderedDict()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._watching: asyncio.Task[None] | None = None
        self._following: set[asyncio.Task[None]] = set()
        self._speakers: WeakSet[Speaker] = WeakSet()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._before: tuple[asyncio.Task[Any] | None, str] = (None, "")
        """The turn and text of the last complete command: the host may show it again."""
        self._said: tuple[asyncio.Task[Any] | None, str] = (None, "")
        """The turn, and what was said of a command that never came."""
        self._commands = 0
        """Speak commands that run now."""
        self._stops = 0
        """How often it was stopped, whether there was anything to stop or not."""
        self._last_stop = 0
        """The same when `last` ended."""
        self._interrupted = InterruptedTurn()
        self._gate = SpeechGate()
        self._waited_for: str | None = None
        """The command that has waited for the sound's end."""

    @property
    def speaking(self) -> bool:
        """Whether something is being said or about to be."""
        return bool(self._live)

    @property
    def busy(self) -> bool:
        """Whether it may not be forgotten."""
        return bool(self._live or self._following or self._commands)

    @property
    def unplayed_s(self) -> float:
        """What is ready and has not been heard yet, seconds."""
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
        """The words of a speak command so far; they are on their way to the server at once.

        ``task`` is the host's task of the turn, whose end is the end of what it was writing.
        """
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
        """The command itself: says what the partials have not, and waits until it is nearly heard.

        ``cmd_id`` is None where another plugin speaks, and not the model.

        Returns:
            Whether there was something to say. (What came of it is told to ``ended``.)
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
        """All of the text is with the server; None where it is not to be said."""
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
                # One that is stopped may wait for the server's answer; whoever speaks need not.
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
        """What is ready and has not been heard yet of what was said up to this command, seconds."""
        at = self._live.index(reply) if reply in self._live else -1
        return sum(map(unheard_s, self._live[: at + 1]))

    async def other(
        self, cmd_id: str | None, task: asyncio.Task[Any] | None, wait_s: float | None
    ) -> None:
        """Another command is about to run; with ``wait_s`` it waits so long for the sound's end.

        Once: its further partials do not wait again.
        """
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
        """Wait until all that is being said has been heard; whether it has, after ``most_s``."""
        await _first_of(self._quiet.wait(), self._sleep(most_s))
        return not self._live

    def stop(self, why: str) -> bool:
        """Silence, now: synchronous. Whether there was anything to stop."""
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
        """The caller speaks: nothing is begun until `go_on` or `stop`.

        ``cut_in``: silence now, and what was being said waits, too.
        """
        self._gate.hush()
        if not cut_in:
            return
        self._gate.hold()
        for speaker in list(self._speakers):
            speaker.interrupt()
        for reply in self._live:
            reply.pause()

    def go_on(self) -> None:
        """They do not any more: what was stopped is said from the first word that was unheard."""
        if self._gate.open():
            for reply in list(self._live):
                reply.go_on()
            for reply in list(self._live):
                if reply.complete and not reply.pending:
                    self._drop(reply)

    def answered(self) -> bool:
        """The caller has said something: what is left of a turn that is over is not said."""
        if not self._live or any(each.task is None or not each.task.done() for each in self._live):
            return False
        return self.stop("the caller has answered")

    def interrupt(self, context: Any) -> bool:
        """The host interrupts the turn: silence, and none of its further commands is said."""
        self._interrupted.note(context)
        return self.stop("the host's on_interrupt")

    def heard_chars(self) -> int:
        """How many characters of what the last turn said were heard, by now."""
        return sum(map(heard_chars, self._turn))

    def heard_text(self) -> str:
        """What was heard of it, by now."""
        return "".join(each.outcome().heard for reply in self._turn for each in reply.utterances)

    def cut_chars(self) -> int | None:
        """How many characters of the last turn were heard, if it was cut short; told once."""
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
        """Stop, and wait until all is settled."""
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
        """Whether the line wants no sound now; then this command stays unsaid as a whole."""
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
        """Report what one stop has cut as one: a sentence, and those that waited behind it."""
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
        """Whether a server has taken the words and let them lie: another one may say them."""
        record = utterance.record
        return (
            isinstance(error, ConnectionLost)
            and not reply.over.is_set()
            and not record.generated_samples
            and Mark.REQUEST_SENT in record.marks
        )

    def _end_text(self, reply: Reply) -> None:
        """What was given is said, and no more."""
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
        """The reply whose text grows, if it is this command's; another one is left."""
        reply = self._writing
        if reply is not None and reply.cmd_id != cmd_id:
            self._leave(reply, task)
            return None
        return reply

    def _leave(
        self, writing: Reply, task: asyncio.Task[Any] | None, *, whole: bool = False
    ) -> None:
        """Something else begins, and the command of this text never came; `_break_off`: whole."""
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
        """Its command will not come. ``whole``: what was shown of its text is all there is.

        Else the model writes it again, and that begins with the word that was not shown whole.
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
        """Who waits for the first sound for long is told that the turn goes on."""
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
    """Whether the host's flag says so, in one of the objects that it keeps for the call."""
    return not reply.deaf and (cancelled(reply.context) or cancelled(reply.also))


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them has; the others are cancelled."""
    tasks = [asyncio.create_task(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
