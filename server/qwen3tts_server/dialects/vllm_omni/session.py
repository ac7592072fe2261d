"""Session of a vLLM-Omni client. Pure.

Messages are read immediately and answered in order; only ``input.cancel`` (ours) jumps the
queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from qwen3tts_server.connection import (
    IDLE,
    RESTART,
    STOPPING,
    TOO_BIG,
    Close,
    ConnectionBounds,
    ConnectionSession,
)
from qwen3tts_server.dialects.http_errors import code_of
from qwen3tts_server.dialects.vllm_omni import messages
from qwen3tts_server.dialects.vllm_omni import utterances as growing
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig, State, message, move
from qwen3tts_server.dialects.vllm_omni.utterances import (
    Answers,
    Command,
    Commit,
    DeferredAnswer,
    EndOfText,
    Granularity,
    More,
    MoreText,
    Splitter,
    Start,
    Stop,
    Unit,
    Utterance,
)
from qwen3tts_server.settings import VllmOmniSettings
from qwen3tts_wire.endpoint import Data
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, ServerBusy, SpeechError
from qwen3tts_wire.heard import Word

POLICY, UNACCEPTABLE = 1008, 1003
"""RFC 6455 section 7.4.1."""


class ClientSilent(SpeechError):
    """The client was idle for too long."""

    code = "timeout"
    retryable = True


class VllmOmniSession(ConnectionSession[Command]):
    """Decisions for one client."""

    def __init__(
        self,
        settings: VllmOmniSettings,
        *,
        now: float,
        backlog_bytes: int = 1 << 20,
        find_model: Callable[[str], object] = lambda name: name,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``find_model`` raises for unknown names; ``on_error`` gets codes."""
        bounds = ConnectionBounds(
            message=max(settings.max_config_chars, settings.max_message_chars),
            backlog=backlog_bytes,
            first_message_s=settings.config_timeout_s,
            idle_s=settings.idle_timeout_s,
        )
        super().__init__(bounds, now)
        self._answers = Answers()
        self._settings = settings
        self._find_model = find_model
        self._on_error = on_error
        self._state = State.NEW
        self._config = SessionConfig()
        self._utterance: Utterance | None = None
        """Open utterance."""
        self._count = 0
        self._waiting: deque[MoreText | EndOfText | Commit | DeferredAnswer] = deque()
        self._waiting_chars = 0
        self._waiting_answers = 0
        self._cutting: Utterance | None = None
        """Utterance whose units are being said."""
        self._unit: Unit | None = None
        """Unit being said."""

    @property
    def busy(self) -> bool:
        said = self._unit is not None and not self._growing
        return said or bool(self._waiting) or self._answers.unread

    @property
    def _growing(self) -> bool:
        utterance = self._cutting
        return (
            self._unit is not None
            and self._unit.grows
            and utterance is not None
            and not utterance.splitter.ended
        )

    # --- the client's messages ---

    def receive(self, data: Data, now: float) -> list[Command]:
        return [] if self._state is State.LEAVING else super().receive(data, now)

    def _handle(self, data: Data, now: float) -> None:
        if isinstance(data, bytes):
            binary = ProtocolError(
                "A binary message came; this protocol is JSON text.",
                remedy="Send text messages; audio comes from the server only.",
            )
            self._refuse(binary, UNACCEPTABLE)
            return
        try:
            self._obey(*messages.parse(data, self._settings))
        except SpeechError as error:
            too_long = isinstance(error, LimitExceeded)
            self._refuse(error, TOO_BIG if too_long else POLICY)

    def _too_large(self) -> None:
        error = LimitExceeded(f"A message has more than {self.bounds.message} characters.")
        self._fatal(error, TOO_BIG, "the message is too long")

    def _obey(self, kind: str, fields: Any) -> None:
        state = move(self._state, kind)
        match kind:
            case "session.config":
                config = messages.config_of(fields)
                if config.model:
                    self._find_model(config.model)
                self._config = config
            case "input.text":
                text = messages.text_of(fields)
                if not text:
                    return
                self._take_text(text)
            case "input.done":
                self._end_utterance()
            case "input.commit":
                self._commit(messages.commit_id_of(fields))
            case "input.cancel":
                self._cancel()
            case _:
                if self._utterance is not None and self._utterance.grows:
                    self._wait(EndOfText(self._utterance, dropped=True))
                self._utterance = None
        if self._state is not State.CLOSED:
            self._state = state

    def _take_text(self, text: str) -> None:
        held = self._waiting_chars + (len(self._cutting.splitter) if self._cutting else 0)
        most = self._settings.max_waiting_chars
        if self._utterance is not None and self._utterance.grows:
            held = max(held, self._utterance.chars)
        if held + len(text) > most:
            raise LimitExceeded(
                f"{held} characters of text wait to be said, and {len(text)} came; "
                f"{most} may wait. The message was not taken.",
                remedy="Send the text as it is said.",
            )
        utterance = self._utterance
        if utterance is None:
            self._refuse_when_draining()
            utterance = self._utterance = self._next_utterance()
        self._waiting_chars += len(text)
        utterance.chars += len(text)
        last = self._waiting[-1] if self._waiting else None
        if isinstance(last, MoreText) and last.utterance is utterance:
            last.parts.append(text)
        else:
            self._waiting.append(MoreText(utterance, [text]))

    def _next_utterance(self) -> Utterance:
        self._count += 1
        granularity = cast(Granularity, self._config.split_granularity)
        return Utterance(self._count - 1, self._config, Splitter(granularity))

    def _end_utterance(self) -> None:
        utterance, self._utterance = self._utterance or self._next_utterance(), None
        self._wait(EndOfText(utterance))

    def _commit(self, commit_id: str | None) -> None:
        if self._config.streaming_mode != "sentence_commit":
            raise BadRequest(
                "input.commit belongs to streaming_mode sentence_commit.",
                remedy="Name it in session.config, or send input.done.",
            )
        if self._utterance is None:
            raise growing.nothing_to_commit()
        self._wait(Commit(self._utterance, commit_id))

    def _wait(self, what: EndOfText | Commit | DeferredAnswer) -> None:
        self._waiting.append(what)
        self._waiting_answers += 1
        self._bound_answers()

    def _bound_answers(self) -> None:
        most = self._settings.max_waiting_answers
        if self._waiting_answers + len(self._answers) > most + 8:
            error = LimitExceeded(
                f"More than {most} answers wait.", remedy="Read them before you send more."
            )
            self._fatal(error, POLICY, "too many messages")

    def _cancel(self) -> None:
        if self._unit is not None:
            self._answers.drop_audio()
            self._answers.done(self._unit, error=False, cancelled=True)
            self._commands.append(Stop(self._unit))
            self._unit = None
        for each in self._waiting:
            if isinstance(each, DeferredAnswer):
                self._answers.put(each.text)
            elif isinstance(each, EndOfText):
                self._answers.session_done(each.utterance, cancelled=True)
        if self._utterance is not None:
            self._answers.session_done(self._utterance, cancelled=True)
            self._utterance = None
        self._forget()
        self._answers.put(message("input.cancelled"))
        self._bound_answers()

    # --- errors ---

    def _refuse(self, error: SpeechError, code: int) -> None:
        if self._state is State.NEW:
            self._fatal(error, code, "session.config is to come first")
        else:
            self._on_error(code_of(error))
            self._wait(DeferredAnswer(messages.error(error)))

    def _fatal(self, error: SpeechError, code: int, reason: str) -> None:
        self._on_error(code_of(error))
        if self._unit is None:
            self._answers.put(messages.error(error))
        else:
            self._commands.append(Stop(self._unit))
            self._broken(self._unit, error)
        self._close(code, reason)

    def _close(self, code: int, reason: str = "") -> None:
        self._state = State.CLOSED
        self._closed = True
        self._utterance = None
        self._forget()
        self._commands.append(Close(code, reason))

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_chars = self._waiting_answers = 0
        self._cutting = None

    # --- what is said ---

    def _advance(self) -> None:
        while self._state is not State.CLOSED:
            if self._growing:
                if not self._waiting:
                    break
                self._perform(self._waiting.popleft())
                continue
            if self._unit is not None or self._answers.unread:
                break
            text = self._cutting.splitter.take() if self._cutting is not None else None
            if self._cutting is not None and text is not None:
                self._begin(self._cutting, text)
            elif self._waiting:
                self._perform(self._waiting.popleft())
            elif self._state is State.LEAVING:
                self._close(1000)
            elif self._draining_until is not None and self._state is not State.OPEN:
                self._close(RESTART, STOPPING)
            else:
                break

    def _perform(self, what: MoreText | EndOfText | Commit | DeferredAnswer) -> None:
        match what:
            case MoreText(utterance, parts) if utterance.grows:
                text = "".join(parts)
                self._waiting_chars -= len(text)
                self._grow(utterance, growing.append_step(utterance, text))
            case Commit(utterance, commit_id):
                self._waiting_answers -= 1
                self._grow(utterance, growing.commit_step(utterance, commit_id))
            case EndOfText(utterance) if utterance.grows and not utterance.splitter.ended:
                self._grow(utterance, growing.end_step(utterance, dropped=what.dropped))
                self._waiting.appendleft(what)
            case MoreText(utterance, parts):
                text = "".join(parts)
                self._waiting_chars -= len(text)
                utterance.splitter.feed(utterance.joiner.push(text))
                self._cutting = utterance
            case EndOfText(utterance) if not utterance.splitter.ended:
                utterance.splitter.feed(utterance.joiner.finish())
                utterance.splitter.end()
                self._cutting = utterance
                self._waiting.appendleft(what)  # its turn comes again after the last unit
            case EndOfText(utterance):
                self._waiting_answers -= 1
                self._cutting = None
                self._answers.session_done(utterance)
            case _:
                self._waiting_answers -= 1
                self._answers.put(what.text)

    def _grow(self, utterance: Utterance, grown: growing.GrowthStep) -> None:
        self._cutting = utterance
        if grown.text and not utterance.over and self._unit is None:
            self._begin(utterance, grown.text)
            grown = replace(grown, text="")
        elif utterance.config.streaming_mode == "sentence_commit" and grown.text:
            utterance.sentences += 1
        if grown.answer:
            self._answers.put(grown.answer)
        if self._unit is not None and (grown.text or grown.flush or grown.final):
            self._commands.append(More(self._unit, grown.text, grown.flush, grown.final))

    def _begin(self, utterance: Utterance, text: str) -> None:
        unit = Unit(
            utterance.config,
            text,
            utterance.index,
            utterance.sentences,
            utterance.grows,
            utterance.voice,
        )
        self._unit = unit
        utterance.sentences += 1
        self._answers.announce(unit)
        self._commands.append(Start(unit))

    def audio(self, unit: Unit, data: bytes, now: float) -> list[Command]:
        if unit is self._unit:
            self._note_activity(now)
            first, self._answers.bytes = self._answers.bytes, self._answers.bytes + len(data)
            if unit.config.word_timestamps:
                self._answers.chunk(unit, data, None, messages.milliseconds(first), len(data))
            else:
                self._answers.audio(data)
        return self._take_commands()

    def finished(self, unit: Unit, words: Sequence[Word], now: float) -> list[Command]:
        """End the unit; ``words`` are aligned to its audio."""
        if unit is self._unit:
            self._note_activity(now)
            if unit.config.word_timestamps:
                # An empty list is silence; null: the words are not known.
                known = bool(words) or not self._answers.bytes
                times = [messages.timed(word) for word in words] if known else None
                self._answers.chunk(unit, b"", times, 0)
            self._answers.done(unit, error=False)
            self._leave_unit()
        return self._take_commands()

    def failed(self, unit: Unit, error: SpeechError, now: float) -> list[Command]:
        if unit is self._unit:
            self._note_activity(now)
            self._broken(unit, error)
        return self._take_commands()

    def _broken(self, unit: Unit, error: SpeechError) -> None:
        partial = {"partial_audio": True, "action": "discard"} if self._answers.bytes else {}
        self._answers.put(messages.error(error, unit.where, **partial))
        self._answers.done(unit, error=True)
        self._leave_unit()

    def _leave_unit(self) -> None:
        if self._growing and self._cutting is not None:
            self._cutting.over = True
        self._unit = None

    # --- writing ---

    @property
    def backlog(self) -> int:
        return self._answers.backlog

    @property
    def full(self) -> bool:
        return self._answers.unread

    def data_to_send(self, now: float) -> list[Data]:
        return self._answers.data_to_send()

    def sent(self, now: float) -> list[Command]:
        self._answers.sent()
        self._note_activity(now)
        return self._take_commands()

    # --- time and the end ---

    def _idle_expired(self) -> None:
        if self._state is State.NEW:
            late = ClientSilent("Timeout waiting for session.config.", remedy="Connect again.")
            self._fatal(late, IDLE, "nothing was said for too long; connect again")
        else:
            idle = ClientSilent("Idle timeout: no message received.", remedy="Connect again.")
            self._fatal(idle, IDLE, "no message came for too long; connect again")

    def _drain_expired(self, now: float) -> None:
        if self._unit is not None:
            self._commands.append(Stop(self._unit))
            late = ServerBusy("The server stopped before the end of the text.")
            self._on_error(late.code)
            self._broken(self._unit, late)
        self._close(RESTART, STOPPING)

    def _take_commands(self) -> list[Command]:
        self._advance()
        return super()._take_commands()
