"""Server's end of ``qwen3tts.speech.v1``, without I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from qwen3tts_wire.endpoint import ContextBroken, ContextRecord, Data, Endpoint, ServerEvent
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError, SpeechError
from qwen3tts_wire.fields import DecodeError, decode, encode
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.messages import (
    CLIENT_MESSAGES,
    MAX_PLAIN_CHARS,
    AlignmentInfo,
    ContextCancel,
    ContextCancelled,
    ContextDone,
    ContextOpen,
    ContextStarted,
    ErrorInfo,
    Limits,
    Ping,
    Pong,
    ServerDraining,
    SessionCreated,
    TextAppend,
    TextEnd,
    TextFlush,
    VoiceLoad,
    VoiceReady,
    WordInfo,
)
from qwen3tts_wire.states import AUDIO, FAILURE, SERVER, ContextState, move


class ServerProtocol(Endpoint[ServerEvent]):
    """The server's end of one connection."""

    KEPT_FAILED = 256
    """Failed contexts remembered: messages crossing the error are no errors."""

    def __init__(
        self, limits: Limits | None = None, on_error: Callable[[str], None] | None = None
    ) -> None:
        """``on_error`` gets each answered error's code."""
        super().__init__()
        self.limits = limits or Limits()
        self._on_error = on_error or (lambda _code: None)
        self._contexts: dict[str, ContextRecord] = {}
        self._failed: OrderedDict[str, None] = OrderedDict()
        """Ids of failed or refused contexts, latest last."""
        self._highest_no = 0

    # --- receiving ---

    def receive_data(self, data: Data) -> None:
        if isinstance(data, bytes):
            self._answer(BadRequest("Binary messages are not expected from a client."))
            return
        if len(data) > self.limits.max_message_bytes:
            self._answer(LimitExceeded(f"The message has {len(data)} characters."))
            return
        if len(data) > MAX_PLAIN_CHARS and not _may_be_voice(data):
            most = f"only a voice.load may have more than {MAX_PLAIN_CHARS}"
            self._answer(LimitExceeded(f"The message has {len(data)} characters; {most}."))
            return
        message = decode(data, CLIENT_MESSAGES, strict=True)
        if isinstance(message, DecodeError):
            self._fault(message)
        elif isinstance(message, ContextOpen):
            self._open(message)
        elif isinstance(message, (Ping, VoiceLoad)):
            self._events.append(message)
        else:
            self._about_context(message)

    def state(self, context_id: str) -> ContextState:
        if (context := self._contexts.get(context_id)) is not None:
            return context.state
        return ContextState.FAILED if context_id in self._failed else ContextState.NEW

    def _open(self, message: ContextOpen) -> None:
        if message.context_id in self._contexts:
            self._answer(
                BadRequest(
                    "context.open names a context that is still known; that one goes on.",
                    context_id=message.context_id,
                )
            )
            return
        if message.context_no <= self._highest_no:
            error: SpeechError = BadRequest(
                f"context.open.context_no must be greater than {self._highest_no}, the last one.",
                context_id=message.context_id,
            )
            self._refuse(message.context_id, error)
            return
        live = sum(each.state in _LIVE for each in self._contexts.values())
        if live >= self.limits.max_contexts:
            error = LimitExceeded(
                f"{live} contexts are open on this connection, which is the most.",
                remedy="Finish or cancel one, or use another connection.",
                context_id=message.context_id,
            )
            self._refuse(message.context_id, error)
            return
        self._highest_no = message.context_no
        context = ContextRecord(message)
        context.state = move(SERVER, context.state, message.type)
        self._failed.pop(message.context_id, None)
        self._contexts[message.context_id] = context
        self._events.append(message)

    def _about_context(self, message: Any) -> None:
        before = self.state(message.context_id)
        if before is ContextState.NEW:
            self._answer(
                BadRequest(
                    f"{message.type} names a context that is not known.",
                    remedy="Open it first; a context that is over is forgotten.",
                    context_id=message.context_id,
                )
            )
            return
        try:
            after = move(SERVER, before, message.type)
        except ProtocolError as error:
            self._answer(BadRequest(error.message, context_id=message.context_id))
            return
        if after is ContextState.FAILED:
            return
        context = self._contexts[message.context_id]
        context.state = after
        if isinstance(message, TextAppend):
            if len(message.text) > self.limits.max_append_chars:
                too_long = LimitExceeded(
                    f"text.append.text has {len(message.text)} characters; "
                    f"at most {self.limits.max_append_chars} are allowed.",
                    remedy="Send it in smaller pieces.",
                )
                self._break(context, too_long)
                return
            message = replace(message, text=context.joiner.push(message.text))
            if not self._counted(context, message.text):
                return
        elif isinstance(message, TextEnd) and (rest := context.joiner.finish()):
            self._events.append(TextAppend(message.context_id, rest))
        self._events.append(message)

    def _counted(self, context: ContextRecord, text: str) -> bool:
        context.chars += len(text)
        if context.chars > self.limits.max_text_chars:
            error = LimitExceeded(
                f"A context holds at most {self.limits.max_text_chars} characters of text.",
                remedy="End it and go on in another one.",
                context_id=context.opened.context_id,
            )
            self._break(context, error)
            return False
        return True

    def _fault(self, fault: DecodeError) -> None:
        context = self._contexts.get(fault.context_id or "")
        if fault.type == "context.open" and fault.context_id is not None and context is None:
            self._refuse(fault.context_id, fault.error)
        elif (
            fault.type in _CARRIES_TEXT
            and context is not None
            and context.state in (ContextState.OPEN, ContextState.ENDING)
        ):
            # Going on would leave a hole in what is said.
            self._break(context, fault.error)
        else:
            self._answer(fault.error, request_id=fault.request_id)

    def _break(self, context: ContextRecord, error: SpeechError) -> None:
        self.send_failure(context.opened.context_id, error)
        self._events.append(ContextBroken(context.opened.context_id, error))

    def _refuse(self, context_id: str, error: SpeechError) -> None:
        self._answer(error, ends="context")
        self._failed[context_id] = None
        self._failed.move_to_end(context_id)
        if len(self._failed) > self.KEPT_FAILED:
            self._failed.popitem(last=False)

    def _answer(
        self, error: SpeechError, *, ends: str = "none", request_id: str | None = None
    ) -> None:
        self._on_error(error.code)
        self.outbox.put(encode(error_info(error, ends=ends, request_id=request_id)))

    # --- sending ---

    def send_session_created(self, message: SessionCreated) -> None:
        self.send_greeting(encode(message))

    def send_greeting(self, text: str) -> None:
        self.outbox.put(text)

    def send_voice_ready(self, message: VoiceReady) -> None:
        self.outbox.put(encode(message))

    def send_pong(self, ping: Ping, received_ms: float, sent_ms: float) -> None:
        self.outbox.put(encode(Pong(ping.client_time_ms, received_ms, sent_ms)))

    def send_started(self, message: ContextStarted) -> None:
        self._move(message.context_id, message.type)
        self.outbox.put(encode(message))

    def send_alignment(self, context_id: str, words: Sequence[WordInfo]) -> None:
        self._move(context_id, AlignmentInfo.type)
        self.outbox.put(encode(AlignmentInfo(context_id, tuple(words))))

    def send_audio(self, context_id: str, data: bytes, *, flags: int = 0) -> AudioFrame:
        """Send samples; counts the offset."""
        context = self._move(context_id, AUDIO)
        frame = AudioFrame(context.no, context.offset, data, flags)
        context.offset += len(data) // context.opened.format.bytes_per_sample
        self.outbox.put(frame.to_bytes())
        return frame

    def send_done(self, message: ContextDone) -> None:
        self._move(message.context_id, message.type)
        self.outbox.put(encode(message))

    def send_cancelled(self, message: ContextCancelled) -> None:
        """Answer a cancel; queued audio is dropped."""
        self._move(message.context_id, message.type)
        self.outbox.put(encode(message))
        self.forget(message.context_id)

    def send_failure(self, context_id: str, error: SpeechError) -> None:
        self._move(context_id, FAILURE)
        error.context_id = context_id
        self.forget(context_id)
        self._refuse(context_id, error)

    def send_error(self, error: SpeechError, *, request_id: str | None = None) -> None:
        self._answer(error, request_id=request_id)

    def send_draining(self, leave_within_ms: float) -> None:
        self.outbox.put(encode(ServerDraining(leave_within_ms)))

    def forget(self, context_id: str) -> None:
        self._contexts.pop(context_id, None)

    def _move(self, context_id: str, message: str) -> ContextRecord:
        context = self._contexts.get(context_id)
        if context is None:
            raise ProtocolError(f"{message}: there is no such context.", context_id=context_id)
        context.state = move(SERVER, context.state, message)
        return context


_LIVE = frozenset({ContextState.OPEN, ContextState.ENDING, ContextState.CANCELLING})
_CARRIES_TEXT = frozenset({TextAppend.type, TextFlush.type, TextEnd.type, ContextCancel.type})


def _may_be_voice(data: str) -> bool:
    """Return whether a long message parses quickly: few fields, one long (base64 has no commas)."""
    return VoiceLoad.type in data and sum(map(data.count, ",[{\\")) <= 16_384


_REMEDIES = {
    "bad_request": "docs/protocol.md has the fields and bounds of each message.",
    "limit_exceeded": "session.created.limits has the bounds of this server.",
    "protocol_error": "docs/protocol.md has what each state of a context allows.",
    "server_busy": "Connect again, or try again later.",
}
"""Default remedies."""


def error_info(
    error: SpeechError, *, ends: str = "none", request_id: str | None = None
) -> ErrorInfo:
    return ErrorInfo(
        code=error.code,
        message=error.message[:4096],
        remedy=(error.remedy or _REMEDIES.get(error.code, ""))[:4096],
        context_id=error.context_id,
        request_id=request_id,
        retryable=error.retryable,
        ends=ends,
    )
