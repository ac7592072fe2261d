"""A session, the client's end of the protocol, an engine and a clock that are moved by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from qwen3tts_engine.base import PcmChunk, SynthesisRequest, Voice
from qwen3tts_server.connection import Close
from qwen3tts_server.dialects.native.commands import (
    Command,
    LoadVoice,
    PauseSynthesis,
    ResumeSynthesis,
    StartSynthesis,
    StopSynthesis,
)
from qwen3tts_server.dialects.native.session import NativeSession
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import UtteranceObserver
from qwen3tts_wire.client_end import ClientProtocol
from qwen3tts_wire.endpoint import ClientEvent
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.formats import AudioFrame
from qwen3tts_wire.heard import Word
from qwen3tts_wire.messages import (
    ContextCancelled,
    ContextDone,
    ContextStarted,
    ErrorInfo,
    SessionCreated,
)
from tests.engine.fake_engine import FakeEngine


class Driver:
    """One connection, every step of it by hand."""

    def __init__(
        self,
        engine: FakeEngine | None = None,
        *,
        observer: UtteranceObserver | None = None,
        timed: bool = False,
        **settings: Any,
    ) -> None:
        """``timed``: the connection's own bounds on silence count from the start."""
        self.now = 100.0
        self.client = ClientProtocol()
        self.session = NativeSession(
            engine or FakeEngine(),
            ServerSettings(**settings),
            observer=observer,
            now=self.now if timed else None,
        )
        self.speaking: dict[int, SynthesisRequest] = {}
        """What the engine is saying, by context."""
        self.loading: list[str] = []
        """Requests for voices that the engine has."""
        self.requests: list[tuple[int, SynthesisRequest]] = []
        self.paused: set[int] = set()
        self.closed: Close | None = None
        self.events: list[ClientEvent] = []
        """Everything that the client received, in order."""
        self.read()

    # --- moving messages ---

    def write(self) -> None:
        """Bring what the client said to the session."""
        for data in self.client.data_to_send():
            self.act(self.session.receive(data, self.now))

    def read(self) -> list[ClientEvent]:
        """Bring everything that the session has to say to the client."""
        events: list[ClientEvent] = []
        while data := self.session.data_to_send(self.now):
            for each in data:
                self.client.receive_data(each)
            events += self.client.events_received()
            self.act(self.session.sent(self.now))
        self.events += events
        return events

    def act(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case StartSynthesis(no, request):
                    assert no not in self.speaking, "two concurrent clauses of one context"
                    self.speaking[no] = request
                    self.requests.append((no, request))
                    self.session.began(no, self.now)
                case StopSynthesis(no):
                    del self.speaking[no]
                    self.paused.discard(no)
                case PauseSynthesis(no):
                    assert no in self.speaking
                    self.paused.add(no)
                case ResumeSynthesis(no):
                    assert no in self.speaking
                    self.paused.remove(no)
                case LoadVoice(message):
                    self.loading.append(message.request_id)
                case Close():
                    assert self.closed is None
                    self.closed = command

    # --- the client ---

    def open(self, **options: Any) -> int:
        no = self.client.send_open(**options).context_no
        self.write()
        return no

    def say(self, no: int, text: str, *, end: bool = False) -> None:
        self.client.send_append(no, text)
        if end:
            self.client.send_end(no)
        self.write()

    def cancel(self, no: int, played: int | None = None) -> ContextCancelled:
        self.client.send_cancel(no, played)
        self.write()
        (answer,) = [e for e in self.read() if isinstance(e, ContextCancelled)]
        return answer

    # --- the engine ---

    def produce(self, no: int, pcm: bytes, *words: Word, **fields: Any) -> None:
        self.act(self.session.produced(no, PcmChunk(pcm, words, **fields), self.now))

    def take(self, no: int) -> str:
        """The engine takes what has come of a live piece."""
        more = self.speaking[no].more
        assert more is not None
        return "".join(text for text, _ in more.take())

    def finish(self, no: int) -> None:
        """The engine ends the clause."""
        del self.speaking[no]
        self.paused.discard(no)
        self.act(self.session.generated(no, self.now))

    def fail(self, no: int, error: SpeechError) -> None:
        del self.speaking[no]
        self.paused.discard(no)
        self.act(self.session.failed(no, error, self.now))

    def speak(self, no: int, samples: int = 2400) -> None:
        """The engine says its clause whole: one word, so many samples."""
        request = self.speaking[no]
        assert request.offsets is not None
        word = Word(request.text, 0, samples, request.offsets[0], request.offsets[-1])
        self.produce(no, tone(samples), word)
        self.finish(no)

    # --- time ---

    def pass_time(self, seconds: float) -> None:
        """Move the clock, with a tick at every deadline on the way."""
        end = self.now + seconds
        ticks = 0
        while (due := self.session.next_deadline(self.now)) is not None and due <= end:
            self.now = max(self.now, due)
            self.act(self.session.tick(self.now))
            ticks += 1
            assert ticks < 1000, "the session never sleeps"
        self.now = end

    # --- what came ---

    def sound(self, no: int) -> bytes:
        frames = [e for e in self.events if isinstance(e, AudioFrame) and e.context_no == no]
        return b"".join(each.data for each in frames)

    def one(self, kind: type[Any]) -> Any:
        (event,) = [each for each in self.events if isinstance(each, kind)]
        return event

    def one_session(self) -> SessionCreated:
        event: SessionCreated = self.one(SessionCreated)
        return event

    def started(self) -> ContextStarted:
        event: ContextStarted = self.one(ContextStarted)
        return event

    def done(self) -> ContextDone:
        event: ContextDone = self.one(ContextDone)
        return event

    def error(self) -> ErrorInfo:
        event: ErrorInfo = self.one(ErrorInfo)
        return event


def tone(samples: int, level: int = 8000) -> bytes:
    """A square wave of 500 Hz at 24 kHz."""
    return array("h", (level if i // 24 % 2 else -level for i in range(samples))).tobytes()


def voices() -> Sequence[Voice]:
    return FakeEngine().voices()
