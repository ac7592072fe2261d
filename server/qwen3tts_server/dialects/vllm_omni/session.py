"""What one client of vLLM-Omni's WebSocket is sent: messages in their order, not yet written."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, cast

from qwen3tts_engine.base import SAMPLE_RATE
from qwen3tts_server.dialects.http_errors import code_of
from qwen3tts_server.dialects.native.session import Close
from qwen3tts_server.dialects.vllm_omni import messages
from qwen3tts_server.dialects.vllm_omni import text as growing
from qwen3tts_server.dialects.vllm_omni.messages import SessionConfig, message
from qwen3tts_server.dialects.vllm_omni.text import (
    Answer,
    Command,
    Commit,
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
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, ServerBusy, SpeechError
from qwen3tts_wire.heard import Word


class Answers:
    """The messages that wait to be written, and how far the unit being said has come."""

    def __init__(self) -> None:
        self._bytes = self._chunks = 0
        """Of the unit being said: audio and messages of audio so far."""
        self._out: deque[tuple[str | bytes, int]] = deque()
        """What is to be written, with the bytes of audio in it."""
        self._writing = False
        """Whether some of it is on its way: what comes next waits until the client has taken it."""

    @property
    def _unread(self) -> bool:
        """Whether the client has not taken all of it."""
        return self._writing or bool(self._out)

    def _announce(self, unit: Unit) -> None:
        self._bytes = self._chunks = 0
        config = unit.config
        more: dict[str, object] = {}
        if config.stream_audio:
            more["sample_rate"] = SAMPLE_RATE
        if config.word_timestamps:
            more["word_timestamps"] = True
        more = {"format": config.response_format, **more}
        self._put(message("audio.start", **unit.where, sentence_text=unit.text.strip(), **more))

    def _chunk(
        self,
        unit: Unit,
        data: bytes,
        timestamps: Sequence[object] | None,
        start_ms: int,
        count: int = 0,
    ) -> None:
        chunk = message(
            "audio.chunk",
            **unit.where,
            chunk_id=self._chunks,
            chunk_start_ms=start_ms,
            chunk_end_ms=messages.milliseconds(self._bytes),
            sample_rate=SAMPLE_RATE,
            audio_b64=base64.b64encode(data).decode("ascii"),
            timestamps=timestamps,
        )
        self._chunks += 1
        self._out.append((chunk, count))

    def _done(self, unit: Unit, *, error: bool, **more: object) -> None:
        self._put(message("audio.done", **unit.where, total_bytes=self._bytes, error=error, **more))

    def _session_done(self, utterance: Utterance, **more: object) -> None:
        index, sentences = utterance.index, utterance.sentences
        self._put(message("session.done", utterance_index=index, total_sentences=sentences, **more))

    def _put(self, text: str) -> None:
        self._out.append((text, 0))

    def _unsend(self, written: tuple[str | bytes, int]) -> bool:
        self._bytes -= written[1]
        return written[1] > 0

    def data_to_send(self) -> list[str | bytes]:
        """Everything that is to be written now."""
        data = [each for each, _ in self._out]
        self._out.clear()
        self._writing = bool(data)
        return data


class State(Enum):
    """What the client may say."""

    NEW = "no session.config yet"
    IDLE = "no utterance is open"
    OPEN = "an utterance is open"
    LEAVING = "the client has said good-bye"
    CLOSED = "nothing more is read"


MOVES: dict[tuple[State, str], State] = {
    (State.NEW, "session.config"): State.IDLE,
    (State.IDLE, "session.config"): State.IDLE,
    (State.IDLE, "input.text"): State.OPEN,
    (State.OPEN, "input.text"): State.OPEN,
    (State.IDLE, "input.commit"): State.IDLE,
    (State.OPEN, "input.commit"): State.OPEN,
    (State.IDLE, "input.done"): State.IDLE,
    (State.OPEN, "input.done"): State.IDLE,
    (State.IDLE, "input.cancel"): State.IDLE,
    (State.OPEN, "input.cancel"): State.IDLE,
    (State.IDLE, "session.close"): State.LEAVING,
    (State.OPEN, "session.close"): State.LEAVING,
}
"""A pair that is missing is an error; so is the type, where it is in no pair."""
TYPES = tuple(dict.fromkeys(kind for _, kind in MOVES))


def move(state: State, kind: str) -> State:
    """The state after a message of this type.

    Raises:
        ProtocolError: there is no such type, or this is not its time.
    """
    after = MOVES.get((state, kind))
    if after is not None:
        return after
    if state is State.NEW:
        raise ProtocolError(
            f"Expected session.config, got: {kind[:40]!a}.", remedy="Send session.config first."
        )
    if kind not in TYPES:
        raise ProtocolError(
            f"Unknown message type: {kind[:40]!a}.", remedy=f"There are {', '.join(TYPES)}."
        )
    raise ProtocolError(
        f"{kind} cannot be applied while an utterance is in progress.",
        remedy="Send input.done first.",
    )


POLICY, UNACCEPTABLE, TOO_BIG, RESTART, SILENT = 1008, 1003, 1009, 1012, 4408
"""Close codes: RFC 6455 section 7.4.1, and our own for a client that says nothing."""


class ClientSilent(SpeechError):
    """The client said nothing for too long."""

    code = "timeout"
    retryable = True


class VllmOmniSession(Answers):
    """All decisions for one connection. ``now`` is the server's monotonic clock in seconds.

    After every call that returns commands, what ``data_to_send`` gives is to be written, and
    ``sent`` told when it was.
    """

    def __init__(
        self,
        settings: VllmOmniSettings,
        *,
        now: float,
        find_model: Callable[[str], object] = lambda name: name,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``find_model`` raises where there is none of that name; ``told`` hears the code of each
        error that the client is told of, but for those of ``failed``."""
        super().__init__()
        self._settings = settings
        self._find_model = find_model
        self._told = told
        self._state = State.NEW
        self._config = SessionConfig()
        self._utterance: Utterance | None = None
        """The one that is open."""
        self._count = 0
        """Utterances so far."""
        self._waiting: deque[MoreText | EndOfText | Commit | Answer] = deque()
        self._waiting_chars = 0
        self._waiting_answers = 0
        self._cutting: Utterance | None = None
        """The one whose units are being said."""
        self._unit: Unit | None = None
        """The one being said."""
        self._since = now
        """When something was heard or said last."""
        self._draining_until: float | None = None
        self._commands: list[Command] = []

    @property
    def busy(self) -> bool:
        """Whether something is being said or waits for that."""
        said = self._unit is not None and not self._growing
        return said or bool(self._waiting) or self._unread

    @property
    def _growing(self) -> bool:
        """Whether the unit being said is to have more text from the client."""
        utterance = self._cutting
        return (
            self._unit is not None
            and self._unit.grows
            and utterance is not None
            and not utterance.splitter.ended
        )

    # --- the client's messages ---

    def receive(self, data: str | bytes, now: float) -> list[Command]:
        """One message of the client."""
        if self._state in (State.LEAVING, State.CLOSED):
            return []
        self._since = now
        most = max(self._settings.max_config_chars, self._settings.max_message_chars)
        if len(data) > most:
            error = LimitExceeded(f"A message of {len(data)} characters; {most} are the most.")
            self._fatal(error, TOO_BIG, "the message is too long")
        elif isinstance(data, bytes):
            binary = ProtocolError(
                "A binary message came; this protocol is JSON text.",
                remedy="Send text messages; audio comes from the server only.",
            )
            self._refuse(binary, UNACCEPTABLE)
        else:
            try:
                self._obey(*messages.parse(data, self._settings))
            except SpeechError as error:
                too_long = isinstance(error, LimitExceeded)
                self._refuse(error, TOO_BIG if too_long else POLICY)
        return self._take_commands()

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
            if self._draining_until is not None:
                raise ServerBusy("The server is stopping.", remedy="Connect again.")
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

    def _wait(self, what: EndOfText | Commit | Answer) -> None:
        self._waiting.append(what)
        self._waiting_answers += 1
        self._bound_answers()

    def _bound_answers(self) -> None:
        """A client that says much and reads little holds no more than this."""
        most = self._settings.max_waiting_answers
        if self._waiting_answers + len(self._out) > most + 8:
            error = LimitExceeded(
                f"More than {most} answers wait.", remedy="Read them before you send more."
            )
            self._fatal(error, POLICY, "too many messages")

    def _cancel(self) -> None:
        """Forget all text; answer for every utterance that was not done, then for the cancel."""
        if self._unit is not None:
            self._out = deque(each for each in self._out if not self._unsend(each))
            self._done(self._unit, error=False, cancelled=True)
            self._commands.append(Stop(self._unit))
            self._unit = None
        for each in self._waiting:
            if isinstance(each, Answer):
                self._put(each.text)
            elif isinstance(each, EndOfText):
                self._session_done(each.utterance, cancelled=True)
        if self._utterance is not None:
            self._session_done(self._utterance, cancelled=True)
            self._utterance = None
        self._forget()
        self._put(message("input.cancelled"))
        self._bound_answers()

    # --- errors ---

    def _refuse(self, error: SpeechError, code: int) -> None:
        """Before the first configuration an error ends the connection, later it does not."""
        if self._state is State.NEW:
            self._fatal(error, code, "session.config is to come first")
        else:
            self._told(code_of(error))
            self._wait(Answer(messages.error(error)))

    def _fatal(self, error: SpeechError, code: int, reason: str) -> None:
        self._told(code_of(error))
        if self._unit is None:
            self._put(messages.error(error))
        else:
            self._commands.append(Stop(self._unit))
            self._broken(self._unit, error)
        self._close(code, reason)

    def _close(self, code: int, reason: str = "") -> None:
        self._state = State.CLOSED
        self._utterance = None
        self._forget()
        self._commands.append(Close(code, reason))

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_chars = self._waiting_answers = 0
        self._cutting = None

    # --- what is said ---

    def _advance(self) -> None:
        """Go on with what waits, one thing after the other, as the client takes it."""
        while self._state is not State.CLOSED:
            if self._growing:
                if not self._waiting:
                    break
                self._perform(self._waiting.popleft())
                continue
            if self._unit is not None or self._unread:
                break
            text = self._cutting.splitter.take() if self._cutting is not None else None
            if self._cutting is not None and text is not None:
                self._begin(self._cutting, text)
            elif self._waiting:
                self._perform(self._waiting.popleft())
            elif self._state is State.LEAVING:
                self._close(1000)
            elif self._draining_until is not None and self._state is not State.OPEN:
                self._close(RESTART, "the server is stopping; connect again")
            else:
                break

    def _perform(self, what: MoreText | EndOfText | Commit | Answer) -> None:
        match what:
            case MoreText(utterance, parts) if utterance.grows:
                text = "".join(parts)
                self._waiting_chars -= len(text)
                self._grow(utterance, growing.came(utterance, text))
            case Commit(utterance, commit_id):
                self._waiting_answers -= 1
                self._grow(utterance, growing.committed(utterance, commit_id))
            case EndOfText(utterance) if utterance.grows and not utterance.splitter.ended:
                self._grow(utterance, growing.ended(utterance, dropped=what.dropped))
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
                self._session_done(utterance)
            case _:
                self._waiting_answers -= 1
                self._put(what.text)

    def _grow(self, utterance: Utterance, grown: growing.Grown) -> None:
        """Hand over what is to be said of a unit that grows."""
        self._cutting = utterance
        if grown.text and not utterance.over and self._unit is None:
            self._begin(utterance, grown.text)
            grown = replace(grown, text="")
        elif utterance.config.streaming_mode == "sentence_commit" and grown.text:
            utterance.sentences += 1
        if grown.answer:
            self._put(grown.answer)
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
        self._announce(unit)
        self._commands.append(Start(unit))

    def audio(self, unit: Unit, data: bytes, now: float) -> list[Command]:
        """Samples of it (s16le, SAMPLE_RATE), or its whole file."""
        if unit is self._unit:
            self._since = now
            first, self._bytes = self._bytes, self._bytes + len(data)
            if unit.config.word_timestamps:
                self._chunk(unit, data, None, messages.milliseconds(first), len(data))
            else:
                self._out.append((data, len(data)))
        return self._take_commands()

    def finished(self, unit: Unit, words: Sequence[Word], now: float) -> list[Command]:
        """All of it was said; ``words`` are where they sound in it."""
        if unit is self._unit:
            self._since = now
            if unit.config.word_timestamps:
                # An empty list is silence; null: the words are not known.
                known = bool(words) or not self._bytes
                times = [messages.timed(word) for word in words] if known else None
                self._chunk(unit, b"", times, 0)
            self._done(unit, error=False)
            self._leave_unit()
        return self._take_commands()

    def failed(self, unit: Unit, error: SpeechError, now: float) -> list[Command]:
        """It could not be said, or not to its end; the next one is tried all the same."""
        if unit is self._unit:
            self._since = now
            self._broken(unit, error)
        return self._take_commands()

    def _broken(self, unit: Unit, error: SpeechError) -> None:
        partial = {"partial_audio": True, "action": "discard"} if self._bytes else {}
        self._put(messages.error(error, unit.where, **partial))
        self._done(unit, error=True)
        self._leave_unit()

    def _leave_unit(self) -> None:
        if self._growing and self._cutting is not None:
            self._cutting.over = True
        self._unit = None

    # --- writing ---

    def sent(self, now: float) -> list[Command]:
        """All that ``data_to_send`` gave was written."""
        self._writing = False
        self._since = now
        return self._take_commands()

    # --- time ---

    def next_deadline(self) -> float | None:
        """When ``tick`` is due; None: not for now."""
        if self._state is State.CLOSED:
            return None
        most = self._settings.idle_timeout_s
        if self._state is State.NEW:
            most = self._settings.config_timeout_s
        silent = self._since + most if most and not self.busy else None
        times = [each for each in (silent, self._draining_until) if each is not None]
        return min(times, default=None)

    def tick(self, now: float) -> list[Command]:
        """Time has passed."""
        due = self.next_deadline()
        if due is not None and now >= due:
            if self._draining_until is not None and now >= self._draining_until:
                self._stop_now()
            elif self._state is State.NEW:
                late = ClientSilent("Timeout waiting for session.config.", remedy="Connect again.")
                self._fatal(late, SILENT, "nothing was said for too long; connect again")
            else:
                idle = ClientSilent("Idle timeout: no message received.", remedy="Connect again.")
                self._fatal(idle, SILENT, "no message came for too long; connect again")
        return self._take_commands()

    def drain(self, within_s: float, now: float) -> list[Command]:
        """The server is to stop: finish what is open, take nothing new. May be hastened."""
        until = now + within_s
        if self._draining_until is None or until < self._draining_until:
            self._draining_until = until
        return self._take_commands()

    def _stop_now(self) -> None:
        if self._unit is not None:
            self._commands.append(Stop(self._unit))
            late = ServerBusy("The server stopped before the end of the text.")
            self._told(late.code)
            self._broken(self._unit, late)
        self._close(RESTART, "the server is stopping; connect again")

    def _take_commands(self) -> list[Command]:
        self._advance()
        commands, self._commands = self._commands, []
        return commands
