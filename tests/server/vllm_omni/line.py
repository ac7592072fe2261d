"""A session of vLLM-Omni's protocol moved by hand, and the order that its answers must have."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

from qwen3tts_server.connection import Close
from qwen3tts_server.dialects.vllm_omni.session import VllmOmniSession
from qwen3tts_server.dialects.vllm_omni.utterances import Command, More, Start, Stop, Unit
from qwen3tts_server.settings import VllmOmniSettings
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.heard import Word

JSON = dict[str, Any]


def config(**fields: Any) -> JSON:
    return {"type": "session.config", **fields}


def text(words: str) -> JSON:
    return {"type": "input.text", "text": words}


DONE = {"type": "input.done"}
CANCEL = {"type": "input.cancel"}
COMMIT = {"type": "input.commit"}
CLOSE = {"type": "session.close"}
STREAM = config(stream_audio=True, response_format="pcm")
TOKENS = config(streaming_mode="token_level")
COMMITS = config(streaming_mode="sentence_commit")
SENTENCES = {**STREAM, "split_granularity": "sentence"}


class Order:
    """Reads what a server says, message by message, and holds it to the protocol's order."""

    def __init__(self) -> None:
        self.unit: tuple[int, int] | None = None
        self.count = 0
        self.sentences = 0
        self.utterance = 0
        self.chunks = 0
        self.chunk_end = 0
        self.failed = False

    def read(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            assert self.unit is not None, "audio outside of a unit"
            assert not self.failed
            self.count += len(data)
            return
        message = json.loads(data)
        kind = message.pop("type")
        data.encode("utf-8")
        getattr(self, "_" + kind.replace(".", "_"))(message)

    def _where(self, message: JSON) -> tuple[int, int]:
        return message["utterance_index"], message["sentence_index"]

    def _audio_start(self, message: JSON) -> None:
        assert self.unit is None, "two concurrent units"
        self.unit = self._where(message)
        assert self.unit == (self.utterance, self.sentences)
        assert message["sentence_text"] == message["sentence_text"].strip() != ""
        assert message["format"] in ("wav", "pcm", "flac", "mp3", "opus")
        assert set(message) <= {
            *("utterance_index", "sentence_index", "sentence_text", "format"),
            *("sample_rate", "word_timestamps"),
        }
        self.sentences += 1
        self.count = self.chunks = self.chunk_end = 0
        self.failed = False

    def _audio_chunk(self, message: JSON) -> None:
        assert self._where(message) == self.unit
        assert message["chunk_id"] == self.chunks
        assert message["sample_rate"] == 24000
        audio = base64.b64decode(message["audio_b64"])
        self.chunks += 1
        self.count += len(audio)
        assert message["chunk_end_ms"] == round(self.count / 48)
        if audio:
            assert message["timestamps"] is None
            assert message["chunk_start_ms"] == self.chunk_end
        else:
            assert message["chunk_start_ms"] == 0
        self.chunk_end = message["chunk_end_ms"]

    def _audio_done(self, message: JSON) -> None:
        assert self._where(message) == self.unit
        assert message["total_bytes"] == self.count
        assert message["error"] is self.failed
        self.unit = None

    def _session_done(self, message: JSON) -> None:
        assert self.unit is None
        assert message["utterance_index"] == self.utterance
        assert message["total_sentences"] == self.sentences
        self.utterance += 1
        self.sentences = 0

    def _input_committed(self, message: JSON) -> None:
        assert message["utterance_index"] == self.utterance
        assert message["chars_committed"] > 0
        # The first begins the unit.
        assert message["sentence_index"] in (0, self.sentences)
        self.sentences = max(self.sentences, message["sentence_index"] + 1)

    def _input_cancelled(self, message: JSON) -> None:
        assert self.unit is None
        assert message == {}
        assert self.sentences == 0

    def _error(self, message: JSON) -> None:
        assert message["code"]
        assert message["message"]
        assert isinstance(message["retryable"], bool)
        if "utterance_index" not in message:
            return  # about a message, not a unit
        assert self._where(message) == self.unit
        assert message.get("partial_audio", False) is (self.count > 0)
        assert message.get("action") == ("discard" if self.count else None)
        self.failed = True


class Line:
    """One connection, every step of it by hand."""

    def __init__(
        self, find_model: Callable[[str], object] = lambda name: name, **settings: Any
    ) -> None:
        self.now = 100.0
        self.told: list[str] = []
        self.session = VllmOmniSession(
            VllmOmniSettings(**settings),
            now=self.now,
            find_model=find_model,
            on_error=self.told.append,
        )
        self.order = Order()
        self.saying: Unit | None = None
        self.more: list[More] = []
        """What was handed over of units that grow."""
        self.closed: Close | None = None
        self.read: list[str | bytes] = []
        """Everything that the client got."""
        self.stuck = False
        """Whether the client reads nothing."""
        self.held: list[str | bytes] = []
        """What is on its way to a client that is stuck."""

    def act(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Start(unit):
                    assert self.saying is None, "two concurrent units"
                    self.saying = unit
                case More(unit):
                    assert unit is self.saying
                    self.more.append(command)
                case Stop(unit):
                    assert self.saying is unit
                    self.saying = None
                case Close():
                    assert self.closed is None
                    self.closed = command
        if not self.held:
            self.held = self.session.data_to_send(self.now)
        if self.held and not self.stuck:
            data, self.held = self.held, []
            for each in data:
                self.order.read(each)
                self.read.append(each)
            self.act(self.session.sent(self.now))

    def say(self, *messages: JSON | str | bytes) -> None:
        for message in messages:
            data = json.dumps(message) if isinstance(message, dict) else message
            self.act(self.session.receive(data, self.now))

    def unstick(self) -> None:
        self.stuck = False
        self.act([])

    def audio(self, data: bytes) -> None:
        assert self.saying is not None
        self.act(self.session.audio(self.saying, data, self.now))

    def finish(self, *words: Word) -> None:
        assert self.saying is not None
        unit, self.saying = self.saying, None
        self.act(self.session.finished(unit, words, self.now))

    def fail(self, error: SpeechError) -> None:
        assert self.saying is not None
        unit, self.saying = self.saying, None
        self.act(self.session.failed(unit, error, self.now))

    def speak(self, data: bytes = bytes(480)) -> str:
        """Say the unit under way; returns its text."""
        assert self.saying is not None
        said = self.saying.text
        self.audio(data)
        self.finish()
        return said

    def unit(self) -> Unit:
        """What is being said."""
        assert self.saying is not None
        return self.saying

    def silent(self) -> bool:
        return self.saying is None

    def code(self) -> int | None:
        """How the connection was closed."""
        return None if self.closed is None else self.closed.code

    def wait(self, seconds: float) -> None:
        """Let time pass, with every deadline in it."""
        end = self.now + seconds
        while (due := self.session.next_deadline(self.now)) is not None and due <= end:
            self.now = max(self.now, due)
            self.act(self.session.tick(self.now))
        self.now = end

    @property
    def messages(self) -> list[JSON]:
        return [json.loads(each) for each in self.read if isinstance(each, str)]

    @property
    def types(self) -> list[str]:
        return [each["type"] for each in self.messages]

    @property
    def last(self) -> JSON:
        return self.messages[-1]
