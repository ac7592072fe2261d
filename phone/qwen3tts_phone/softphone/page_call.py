"""Call of a page: requests, states, and the caller's turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from qwen3tts_codecs.table import payload_by_name
from qwen3tts_phone.call.events import MediaBegan, MediaSilent
from qwen3tts_phone.errors import traceback_without_message
from qwen3tts_phone.softphone import messages as protocol
from qwen3tts_phone.softphone.messages import Call, Dial, Listen, ServerMessage, State
from qwen3tts_phone.softphone.page_speech import Captions, PageVoice, TypedText
from qwen3tts_phone.softphone.recordings import PageRecording
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.webrtc.call import WebCall
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_phone.softphone.webrtc.statistics import TransportStatistics
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_speech.utterance import Utterance
from qwen3tts_wire.errors import BadRequest, LimitExceeded, SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call as AnyCall
    from qwen3tts_phone.detection.events import Turn
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.detection.speech_detection import SpeechDetection
    from qwen3tts_phone.softphone.bridge import CallBridge


MAX_EARLY_TURNS = 20


class CallerTurns:
    """Turns of the caller or dialled party, as messages to the page."""

    def __init__(self, tell: Callable[[ServerMessage], None], settings: ListenSettings) -> None:
        self._tell = tell
        self._settings = settings
        self._listening: SpeechDetection | None = None
        self._early: list[str] = []

    def follow(self, listening: SpeechDetection) -> None:
        listening.on_voice = self._voice
        listening.followers.append(self._turn)
        self._listening = listening
        early, self._early = self._early, []
        for text in early:
            listening.typed(text)

    def say(self, text: str) -> None:
        if self._listening is not None:
            self._listening.typed(text)
        elif len(self._early) < MAX_EARLY_TURNS:
            self._early.append(text)
        else:
            raise LimitExceeded(
                f"{MAX_EARLY_TURNS} typed turns wait for the call already.",
                remedy="Type on when the call is up.",
            )

    def listen(self, call: AnyCall, *, barge_in: bool) -> None:
        listening = call.hear(replace(self._settings, barge_in=barge_in))
        if call.on_hear is None:
            self.follow(listening)
        listening.start()

    def report_error(self, error: SpeechError) -> None:
        self._tell(protocol.Error(error.code, error.message, error.remedy, "call"))

    def _voice(self, speaking: bool, at: float) -> None:
        self._tell(protocol.Caller(speaking))

    def _turn(self, turn: Turn) -> None:
        if turn.text:  # empty without a recogniser
            began_ms, ended_ms = turn.began_at * 1000, turn.ended_at * 1000
            self._tell(protocol.Turn(turn.text, turn.barge_in, began_ms, ended_ms))
        if turn.error is not None:
            self.report_error(turn.error)


logger = logging.getLogger(__name__)

STATISTICS_INTERVAL_S = 0.2
LOST = State(
    "lost",
    "nothing comes from this browser",
    "Check the network; the call goes on when it is back.",
)


class PageCall:
    """Call of a page, which runs by itself from `begin` to its end.

    ``tell`` gets each message for the page; ``host`` and ``program`` are those of its browser.
    """

    def __init__(
        self,
        services: SoftphoneServices,
        tell: Callable[[ServerMessage], None],
        *,
        host: str = "",
        program: str = "",
    ) -> None:
        self._services = services
        self._tell = tell
        self._host = host
        self._program = program
        self._call: WebCall | None = None
        self._bridge: CallBridge | None = None
        self._captions = Captions(tell, services.clock)
        self._voice = PageVoice(services, self._captions)
        self._turns = CallerTurns(tell, services.settings.listen)
        self._recording: PageRecording | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._run: asyncio.Task[None] | None = None
        self._left = False
        self.state = State("connecting")

    @property
    def id(self) -> str | None:
        return self._call.id if self._call is not None else None

    @property
    def over(self) -> bool:
        return self._run is not None and self._run.done()

    @property
    def ending(self) -> bool:
        return self._left or self.state.state == "ended"

    def begin(self, asked: Call | Dial | Listen, before: PageCall | None = None) -> None:
        self._run = asyncio.create_task(self._whole(asked, before), name="call of a page")

    async def ended(self) -> None:
        if self._run is not None:
            await asyncio.wait([self._run])

    # --- requests of the page

    def leave(self, reason: str = "") -> None:
        first, self._left = not self._left, True
        if self._call is not None:
            self._call.far_end_left(reason)
        elif self._run is not None and first:  # a second cancellation would stop the clean-up
            # In the next turn of the loop: a task cancelled before its start runs nothing.
            asyncio.get_running_loop().call_soon(self._run.cancel)

    def interrupt(self) -> None:
        self._voice.drop_queued()
        if self._bridge is not None:
            self._bridge.interrupt()
        elif self._call is not None:
            self._call.interrupt()

    def type(self, number: int, text: str) -> None:
        self._voice.type(number, text)

    def type_end(self, number: int) -> None:
        self._voice.type_end(number)

    def say(self, text: str) -> None:
        """Add a typed turn of the caller for the agent.

        Raises BadRequest (no agent), LimitExceeded (too many turns wait), WrongState (over).
        """
        if self._services.agent is None or self._bridge is not None:
            raise BadRequest(
                "No agent talks on this call.", remedy="Type for the voice, or start it with --llm."
            )
        self._turns.say(text)

    def choose_voice(self, message: protocol.Voice) -> None:
        self._voice.choose(message.engine, message.voice, message.language)
        self._start(self._voice.check())

    def press(self, digit: str) -> None:
        if self._bridge is not None:
            self._start(self._bridge.press(digit))
        elif self._call is not None:
            self._call.pressed(digit)

    def talk(self, on: bool) -> None:
        if self._bridge is None:
            raise BadRequest("There is no other call to talk in.")
        self._bridge.talk(on)

    def report(self, message: Report) -> None:
        if self._call is not None:
            self._call.report(message)

    def repeat(self) -> None:
        self._tell(self.state)
        self._captions.repeat()

    # --- run

    async def _whole(self, asked: Call | Dial | Listen, before: PageCall | None) -> None:
        try:
            if before is not None:
                await before.ended()
            await self._course(asked)
        except SpeechError as error:
            self._ended(error.message, error.remedy, "error", error.code)
        except asyncio.CancelledError:
            self._ended("we hung up", by="local")
            raise
        except Exception as error:
            logger.error("a call of a page failed\n%s", traceback_without_message(error))
            self._ended("internal error; the log has more", by="error", code="internal_error")
        finally:
            await self._clear_away()

    async def _course(self, asked: Call | Dial | Listen) -> None:
        services, voice = self._services, self._voice
        self._tell(self.state)
        if not isinstance(asked, Call) and services.gateway is None:
            raise BadRequest(
                "This softphone has no telephone.", remedy="Start it with --sip or --config FILE."
            )
        if isinstance(asked, Listen):
            voice.choose(None, None, None)
        else:
            voice.choose(asked.engine, asked.voice, asked.language)
        call, answer = await services.web_call(
            asked.sdp,
            asked.codec,
            voice.engine,
            voice.options,
            host=self._host,
            program=self._program,
        )
        self._call = call
        hz = payload_by_name(call.codec).sample_hz
        self._tell(protocol.Answer(call.id, answer, call.codec, hz))
        call.on_hear = self._turns.follow
        self._start(self._end_in_time(call))
        self._start(self._follow_events(call))
        if not isinstance(asked, Listen) and asked.record:
            allowed = services.settings.recording
            self._recording = PageRecording(services.recorded, self._tell, allowed=allowed)
            self._recording.begin(call)
        if isinstance(asked, Call):
            await self._alone(call, asked)
        else:
            await self._with_other(call, asked)

    async def _alone(self, call: WebCall, asked: Call) -> None:
        try:
            await call.answer()
        except SpeechError:
            if call.facts.end is None:
                raise
            # The call's end says more than the error.
            await self._finish(call, await call.ended())
            return
        if call.speaker is not None:
            self._voice.set_speaker(call.speaker)
            self._captions.follow(call.speaker)
        self._set_state(State("up"))
        self._begin_typing()
        self._start(self._figures(call))
        if self._services.agent is not None:
            self._start(self._services.agent.talk(call))
        else:
            self._start(self._listen(call, asked.barge_in))
        await self._finish(call, await call.ended())

    async def _with_other(self, call: WebCall, asked: Dial | Listen) -> None:
        gateway = self._services.gateway
        assert gateway is not None
        bridge: CallBridge
        if isinstance(asked, Dial):
            bridge = await gateway.dial(call, asked.uri)
        else:
            bridge = await gateway.listen(call, asked.call_id)
        self._bridge = bridge
        self._start(self._figures(call))
        self._start(self._connect(call))
        if isinstance(asked, Dial):
            bridge.on_moved = partial(self._moved, asked.barge_in)
            self._start(self._with_party(bridge, asked.barge_in))
        else:
            self._begin_typing()
        last: State | None = None
        async for state in bridge.states():
            if state.state == "ended":
                last = state
            else:
                self._set_state(state)
        await bridge.over()
        await self._finish(call, await call.ended(), last)

    async def _finish(self, call: WebCall, cause: str, last: State | None = None) -> None:
        await self._captions.close()
        end = call.facts.end
        by = end.by if end is not None else ""
        error = end.error if end is not None else None
        if last is None or (not last.code and (error is not None or not last.cause)):
            last = State("ended", cause, by=by)
            if error is not None:
                last = State("ended", error.message, error.remedy, by, error.code)
        self._set_state(last)
        if self._recording is not None:
            await self._recording.keep()

    async def _clear_away(self) -> None:
        self._voice.end()
        async with AsyncExitStack() as stack:  # each step is done, whatever the others raise
            stack.push_async_callback(self._captions.close)
            stack.push_async_callback(self._stop_tasks)
            if self._call is not None:
                stack.callback(self._services.forget, self._call)
                stack.push_async_callback(self._call.hangup)
            if self._bridge is not None:
                stack.push_async_callback(self._bridge.close)

    async def _stop_tasks(self) -> None:
        for task in (tasks := list(self._tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- tasks

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work, name="work of a page's call")
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        if isinstance(error, SpeechError):
            self._turns.report_error(error)
        else:
            logger.error("a task of a page's call failed\n%s", traceback_without_message(error))

    async def _listen(self, call: WebCall, barge_in: bool) -> None:
        self._turns.listen(call, barge_in=barge_in)

    async def _connect(self, call: WebCall) -> None:
        with suppress(SpeechError):
            await call.answer()

    async def _with_party(self, bridge: CallBridge, barge_in: bool) -> None:
        with suppress(SpeechError):  # reported as a state
            await bridge.call.answered()
        if bridge.call.over:
            return
        self._moved(barge_in, bridge.call)
        self._begin_typing()

    def _moved(self, barge_in: bool, party: AnyCall) -> None:
        if party.speaker is not None:
            self._voice.set_speaker(party.speaker)
        try:
            self._turns.listen(party, barge_in=barge_in)
        except SpeechError as error:
            self._turns.report_error(error)

    async def _follow_events(self, call: WebCall) -> None:
        async for event in call.progress():
            if isinstance(event, MediaSilent) and self.state.state == "up":
                self._set_state(LOST)
            elif isinstance(event, MediaBegan) and self.state.state == "lost":
                self._set_state(State("up"))

    async def _end_in_time(self, call: WebCall) -> None:
        clock = self._services.clock
        await clock.sleep_until(clock.now() + self._services.settings.max_call_s)
        self._tell(
            protocol.Error("too_long", "The call has reached its longest duration.", "Call again.")
        )
        await call.hangup()

    async def _figures(self, call: WebCall) -> None:
        clock = self._services.clock
        while not call.over:
            self._tell(line_message(call.statistics(), self._services.now_ms))
            await clock.sleep_until(clock.now() + STATISTICS_INTERVAL_S)

    def _begin_typing(self) -> None:
        try:
            self._voice.begin(self._say)
        except SpeechError as error:  # it is over already
            self._turns.report_error(error)

    def _say(self, words: TypedText, options: VoiceOptions) -> Utterance:
        if self._bridge is not None:
            return self._bridge.speak(words)  # with the voice of the call's own speaker
        if self._call is None:
            raise BadRequest("There is no call yet.", remedy="Call first, then type.")
        return self._call.speak(words, options)

    # --- reports

    def _set_state(self, state: State) -> None:
        self.state = state
        self._tell(state)

    def _ended(self, cause: str, remedy: str = "", by: str = "", code: str = "") -> None:
        if self.state.state != "ended":
            self._set_state(State("ended", cause, remedy, by, code))


def line_message(statistics: TransportStatistics, time_ms: float) -> protocol.Line:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    report = statistics.report
    return protocol.Line(
        time_ms,
        statistics.pacer or statistics.state,
        queued_ms=round(statistics.queued_ms, 3),
        starvations=statistics.starvations,
        longest_gap_ms=round(statistics.longest_gap_ms, 3),
        frames=statistics.frames,
        skipped=statistics.skipped,
        first_sound_ms=rounded(statistics.first_sound_ms),
        rtt_ms=rounded(statistics.rtt_ms),
        lost=report.lost,
        concealed=report.concealed,
        jitter_buffer_ms=rounded(report.jitter_buffer_ms),
    )
