"""Client's end of ``qwen3tts.speech.v1``, without I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qwen3tts_wire.endpoint import ClientEvent, ContextRecord, Data, Endpoint, Violation
from qwen3tts_wire.errors import BadRequest, LimitExceeded, ProtocolError
from qwen3tts_wire.fields import DecodeError, decode, encode, kinds, read, write
from qwen3tts_wire.formats import AudioFormat, AudioFrame
from qwen3tts_wire.messages import (
    SERVER_MESSAGES,
    AudioCredit,
    ContextCancel,
    ContextOpen,
    ErrorInfo,
    Limits,
    Ping,
    PlayoutReport,
    Pong,
    ServerDraining,
    SessionCreated,
    TextAppend,
    TextEnd,
    TextFlush,
    VoiceLoad,
    VoiceReady,
)
from qwen3tts_wire.states import AUDIO, CLIENT, FAILURE, OVER, ContextState, move


class ClientProtocol(Endpoint[ClientEvent]):
    """The client's end of one connection."""

    def __init__(self, last_no: int = 0) -> None:
        """Number contexts from ``last_no`` + 1."""
        super().__init__()
        self.session: SessionCreated | None = None
        """Server's greeting."""
        self.strays = 0
        """Dropped messages of finished contexts; 0 with a correct server."""
        self._contexts: dict[int, ContextRecord] = {}
        self._numbers: dict[str, int] = {}
        self.last_no = last_no
        """Last context number."""

    # --- sending ---

    def send_open(
        self,
        context_id: str | None = None,
        *,
        format: AudioFormat | None = None,  # noqa: A002 - the field's name on the wire
        **options: Any,
    ) -> ContextOpen:
        """Open a context with the fields of ``context.open``."""
        known = [name for name in kinds(ContextOpen) if name != "context_no"]
        unknown = options.keys() - set(known)
        if unknown:
            raise BadRequest(
                f"context.open takes no option {', '.join(sorted(unknown))}.",
                remedy=f"Its options are: {', '.join(known)}.",
            )
        self.last_no += 1
        wanted = ContextOpen(
            context_id=context_id or f"c{self.last_no}",
            context_no=self.last_no,
            format=format or AudioFormat(),
            **{name: value for name, value in options.items() if value is not None},
        )
        message: ContextOpen = read(ContextOpen, write(wanted), where="context.open", strict=True)
        message.format.checked()
        if self.session is not None:
            # Credit beyond the server's bound would not count there, and be waited for here.
            most = self.session.limits.max_window_ms
            message = replace(message, window_ms=min(message.window_ms, most))
        if message.context_id in self._numbers:
            raise BadRequest("A context of this id is open.", context_id=message.context_id)
        context = ContextRecord(message)
        context.state = move(CLIENT, context.state, message.type)
        self._contexts[message.context_no] = context
        self._numbers[message.context_id] = message.context_no
        self.outbox.put(encode(message))
        return message

    def send_append(self, context_no: int, text: str) -> str:
        """Send text in pieces; return it with surrogates joined."""
        if not isinstance(text, str):
            raise BadRequest(f"Text must be a str, not {type(text).__name__}.")
        context = self._move(context_no, TextAppend.type)
        joined = context.joiner.push(text)
        limits = self.session.limits if self.session is not None else Limits()
        if context.chars + len(joined) > limits.max_text_chars:
            raise LimitExceeded(
                f"A context holds at most {limits.max_text_chars} characters of text.",
                remedy="End it and go on in another one.",
                context_id=context.opened.context_id,
            )
        context.chars += len(joined)
        step = limits.max_append_chars
        for start in range(0, len(joined), step):
            piece = joined[start : start + step]
            self.outbox.put(encode(TextAppend(context.opened.context_id, piece)))
        return joined

    def send_flush(self, context_no: int) -> None:
        context = self._move(context_no, TextFlush.type)
        self.outbox.put(encode(TextFlush(context.opened.context_id)))

    def send_end(self, context_no: int) -> str:
        """End the text; return the addition for an unpaired surrogate."""
        context = self._move(context_no, TextEnd.type)
        rest = context.joiner.finish()
        if rest:
            context.chars += 1
            self.outbox.put(encode(TextAppend(context.opened.context_id, rest)))
        self.outbox.put(encode(TextEnd(context.opened.context_id)))
        return rest

    def send_report(self, context_no: int, played: int, state: str = "playing") -> None:
        kinds(PlayoutReport)["state"][0].check(state, "playout.report.state")
        context = self._move(context_no, PlayoutReport.type)
        self.outbox.put(encode(PlayoutReport(context.opened.context_id, played, state)))

    def send_credit(self, context_no: int, window_ms: float) -> None:
        context = self._move(context_no, AudioCredit.type)
        self.outbox.put(encode(AudioCredit(context.opened.context_id, window_ms)))

    def send_cancel(self, context_no: int, played: int | None = None) -> None:
        """Cancel a context; its audio is dropped."""
        context = self._move(context_no, ContextCancel.type)
        self.outbox.put(encode(ContextCancel(context.opened.context_id, played)))

    def send_voice_load(self, request_id: str, **options: Any) -> VoiceLoad:
        """Send ``voice.load``; raises BadRequest or LimitExceeded."""
        unknown = options.keys() - kinds(VoiceLoad).keys()
        if unknown:
            raise BadRequest(f"voice.load takes no option {', '.join(sorted(unknown))}.")
        wanted = VoiceLoad(request_id, **options)
        limits = self.session.limits if self.session is not None else Limits()
        data = encode(wanted)
        if len(data.encode()) > limits.max_message_bytes:
            raise LimitExceeded(
                f"The reference audio is larger than the {limits.max_message_bytes} bytes of "
                "one message (as base64).",
                remedy="Send a shorter one, or a compressed sound file.",
            )
        message: VoiceLoad = read(VoiceLoad, write(wanted), where="voice.load", strict=True)
        self.outbox.put(data)
        return message

    def send_ping(self, client_time_ms: float) -> None:
        self.outbox.put(encode(Ping(client_time_ms)))

    def state(self, context_no: int) -> ContextState:
        context = self._contexts.get(context_no)
        return ContextState.NEW if context is None else context.state

    def forget(self, context_no: int) -> None:
        """Forget a context; its late messages are dropped."""
        context = self._contexts.pop(context_no, None)
        if context is not None:
            self._numbers.pop(context.opened.context_id, None)

    def _move(self, context_no: int, message: str) -> ContextRecord:
        context = self._contexts.get(context_no)
        if context is None:
            raise ProtocolError(f"{message}: there is no such context.")
        context.state = move(CLIENT, context.state, message)
        return context

    # --- receiving ---

    def receive_data(self, data: Data) -> None:
        if isinstance(data, bytes):
            try:
                frame = AudioFrame.from_bytes(data)
            except ProtocolError as error:
                self._events.append(Violation(error))
                return
            self._audio(frame)
            return
        message = decode(data, SERVER_MESSAGES, strict=False)
        if message is None:
            return
        if isinstance(message, DecodeError):
            self._events.append(
                Violation(
                    ProtocolError(f"The server sent what it may not: {message.error.message}"),
                    self._numbers.get(message.context_id or ""),
                )
            )
        elif isinstance(message, SessionCreated):
            self._session(message)
        elif isinstance(message, ErrorInfo):
            self._error(message)
        elif isinstance(message, (Pong, ServerDraining, VoiceReady)):
            self._events.append(message)
        else:
            self._about_context(message)

    def _session(self, message: SessionCreated) -> None:
        if self.session is not None:
            self._events.append(Violation(ProtocolError("session.created came twice.")))
            return
        self.session = message
        self._events.append(message)

    def _error(self, message: ErrorInfo) -> None:
        number = self._numbers.get(message.context_id or "")
        if message.ends == "context" and number is not None:
            self._advance(number, FAILURE, message)
        else:
            self._events.append(message)

    def _about_context(self, message: Any) -> None:
        number = self._numbers.get(message.context_id)
        if number is None:
            self.strays += 1
            return
        self._advance(number, message.type, message)

    def _audio(self, frame: AudioFrame) -> None:
        context = self._contexts.get(frame.context_no)
        if context is None:
            if frame.context_no > self.last_no:
                error = ProtocolError(f"Audio of context {frame.context_no}, never opened.")
                self._events.append(Violation(error))
            else:
                self.strays += 1
            return
        width = context.opened.format.bytes_per_sample
        if frame.offset != context.offset or len(frame.data) % width:
            error = ProtocolError(
                f"Audio at sample {frame.offset} ({len(frame.data)} bytes), "
                f"where sample {context.offset} follows."
            )
            self._events.append(Violation(error, frame.context_no))
            return
        context.offset += len(frame.data) // width
        self._advance(frame.context_no, AUDIO, frame)

    def _advance(self, number: int, name: str, event: ClientEvent) -> None:
        context = self._contexts[number]
        before = context.state
        try:
            context.state = move(CLIENT, before, name)
        except ProtocolError as error:
            self._events.append(Violation(error, number))
            return
        if context.state in OVER:
            self.forget(number)
        if before is ContextState.CANCELLING and context.state is before:
            return  # crossed our cancel
        self._events.append(event)
