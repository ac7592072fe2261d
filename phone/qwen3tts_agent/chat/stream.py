"""Decoder of streamed chat completions (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from qwen3tts_agent.chat.messages import ChatEvent, Finished, ModelUnavailable, ToolCall
from qwen3tts_wire.errors import LimitExceeded, ProtocolError, SpeechError
from qwen3tts_wire.fields import JSON
from qwen3tts_wire.sse import SseParser

BEGIN, END = "<think>", "</think>"


class ReasoningFilter:
    """Filter of leading reasoning: ``<think>…</think>`` (pure).

    Reasoning that never ends leaves an empty answer.
    """

    def __init__(self) -> None:
        self.thinking = False
        self._held: str | None = ""
        """Text that may begin, or end, reasoning; None: the answer has begun."""

    def push(self, delta: str) -> str:
        if self._held is None:
            return delta
        self._held += delta
        if not self.thinking:
            text = self._held.lstrip()
            if BEGIN.startswith(text):
                return ""
            if not text.startswith(BEGIN):
                return self.finish()
            self.thinking = True
        before, end, after = self._held.partition(END)
        if not end:
            self._held = before[-len(END) :]
            return ""
        self.thinking = False
        # An answer may stand after an empty line.
        self._held = None if after.strip() else ""
        return after.lstrip()

    def finish(self) -> str:
        held, self._held = self._held, None
        return "" if self.thinking else held or ""


MAX_CALLS = 32
"""Tool calls of one answer."""
MAX_ARGUMENT_CHARS = 100_000
"""Arguments of one tool call."""


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""


class ToolCalls:
    """Assembler of tool calls from deltas, by index, else by id."""

    def __init__(self) -> None:
        self._calls: dict[object, _Call] = {}
        self._last: object = None
        self._given = 0

    def push(self, pieces: object) -> None:
        """Take the ``tool_calls`` of a delta or a whole message.

        Raises ProtocolError, LimitExceeded.
        """
        if not isinstance(pieces, list):
            raise ProtocolError("the language model sent tool calls that are not a list.")
        for piece in pieces:
            if not isinstance(piece, dict):
                raise ProtocolError("the language model sent a tool call that is not an object.")
            self._take(piece)

    def take(self) -> list[ToolCall]:
        calls, self._calls, self._last = list(self._calls.values()), {}, None
        taken = []
        for call in calls:
            self._given += 1
            taken.append(ToolCall(call.id or f"call_{self._given}", call.name, call.arguments))
        return taken

    def _take(self, piece: JSON) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        call = self._call_of(piece, named=bool(function.get("name")))
        identity, name = piece.get("id"), function.get("name")
        if isinstance(identity, str) and not call.id:
            call.id = identity
        if isinstance(name, str) and name != call.name:
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, dict | list):
            arguments = json.dumps(arguments)
        if isinstance(arguments, str):
            call.arguments += arguments
        if len(call.arguments) + len(call.name) + len(call.id) > MAX_ARGUMENT_CHARS:
            raise LimitExceeded(
                f"the arguments of a tool are longer than {MAX_ARGUMENT_CHARS} characters."
            )

    def _call_of(self, piece: JSON, *, named: bool) -> _Call:
        index, identity = piece.get("index"), piece.get("id")
        key: object = index if type(index) is int else None
        if isinstance(identity, str) and identity:
            known = self._calls.get(key)
            another = known is not None and known.id not in ("", identity) and named
            if key is None or another:
                key = f"id {identity}"
        elif key is None:
            # Without index and id: a name begins a call, anything else goes on with the last.
            begins = named or self._last is None
            key = f"number {len(self._calls)}" if begins else self._last
        if key not in self._calls:
            if len(self._calls) >= MAX_CALLS:
                raise LimitExceeded(
                    f"the language model uses more than {MAX_CALLS} tools in one reply."
                )
            self._calls[key] = _Call()
        self._last = key
        return self._calls[key]


class ChatStream:
    """Decoder of one stream of chat completions."""

    def __init__(self) -> None:
        self.ended = False
        """True if the stream's end was received."""
        self.failure: SpeechError | None = None
        """Error after the last event that was returned; nothing follows it."""
        self.finish_reason = ""
        """Reason for the model's end: ``stop``, ``length``, ``tool_calls``, …"""
        self._parser = SseParser()
        self._thoughts = ReasoningFilter()
        self._calls = ToolCalls()
        self._any = False

    @property
    def thinking(self) -> bool:
        return self._thoughts.thinking

    def push(self, data: bytes) -> list[ChatEvent]:
        events: list[ChatEvent] = []
        try:
            for event in self._parser.push(data):
                if self.ended or self.failure is not None:
                    break
                if event.data.strip() == "[DONE]":
                    self.ended = True
                    events += self._end()
                else:
                    events += self._events(event.data)
        except SpeechError as error:
            self.failure = error
        self._any = self._any or bool(events)
        return events

    def finish(self) -> list[ChatEvent]:
        """Return held events at the end; raises ModelUnavailable if too early."""
        if not self.ended and not self.finish_reason:
            raise ModelUnavailable(
                "the language model's answer ended in mid-sentence."
                if self._any
                else "the language model's answer is empty.",
                remedy="Try again; its own log may say more.",
            )
        return self._end()

    def _end(self) -> list[ChatEvent]:
        return [*self._rest(), Finished(self.finish_reason)]

    def _events(self, data: str) -> list[ChatEvent]:
        raw = parsed(data)
        if raw.get("error"):
            raise stream_error(raw["error"])
        choices = raw.get("choices")
        if not isinstance(choices, list) or not choices:
            return []  # usage reports and keep-alives
        choice = choices[0]
        if not isinstance(choice, dict):
            raise ProtocolError("the language model sent a choice that is not an object.")
        events: list[ChatEvent] = []
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if text := self._thoughts.push(text_of(delta)):
                events.append(text)
            if delta.get("tool_calls"):
                self._calls.push(delta["tool_calls"])
        if reason := choice.get("finish_reason"):
            self.finish_reason = str(reason)[:100]
            events += self._rest()
        return events

    def _rest(self) -> list[ChatEvent]:
        text = self._thoughts.finish()
        return [*([text] if text else []), *self._calls.take()]


def text_of(message: JSON) -> str:
    content = message.get("content")
    if content is None:
        content = message.get("refusal")  # a refusal to answer
    if content is None:
        return ""
    if isinstance(content, list):  # parts, of which text is one kind
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(text for text in texts if isinstance(text, str))
    if not isinstance(content, str):
        raise ProtocolError("the language model sent content that is not text.")
    return content


def parsed(data: str | bytes) -> JSON:
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        raise ProtocolError(
            "the language model sent invalid JSON.",
            remedy="Check that its address is an OpenAI-compatible endpoint.",
        ) from None
    if not isinstance(raw, dict):
        raise ProtocolError("the language model sent JSON that is not an object.")
    return raw


def whole_answer(body: bytes) -> list[ChatEvent]:
    """Return the events of an unstreamed answer.

    Raises ModelUnavailable, ProtocolError, LimitExceeded.
    """
    raw = parsed(body)
    if raw.get("error"):
        raise stream_error(raw["error"])
    match raw.get("choices"):
        case [{"message": dict(message)}, *_]:
            thoughts, calls = ReasoningFilter(), ToolCalls()
            text = thoughts.push(text_of(message)) + thoughts.finish()
            if message.get("tool_calls"):
                calls.push(message["tool_calls"])
            events: list[ChatEvent] = [*([text] if text else []), *calls.take()]
            if events or "content" in message:
                reason = raw["choices"][0].get("finish_reason")
                return [*events, Finished(str(reason or "")[:100])]
    raise ProtocolError("the language model's answer holds no text.")


def stream_error(error: object) -> SpeechError:
    return ModelUnavailable(
        f"the language model failed: {one_line(error)}", remedy="Its own log may say more."
    )


def refusal_words(body: bytes) -> str:
    try:
        raw = parsed(body)
    except ProtocolError:
        return ""
    return one_line(raw.get("error") or raw.get("detail") or raw.get("message") or "")


def one_line(error: object) -> str:
    if isinstance(error, dict):
        error = error.get("message") or error.get("code") or "no reason given"
    line = " ".join(str(error).split())[:300]
    return "".join(char if char.isprintable() else "?" for char in line)
