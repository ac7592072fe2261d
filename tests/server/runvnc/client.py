"""A session of the runvnc protocol and its client, every step by hand."""

from __future__ import annotations

import base64
import json
from typing import Any

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.connection import Close
from qwen3tts_server.dialects.runvnc.messages import FRAME, Init
from qwen3tts_server.dialects.runvnc.session import (
    Append,
    Command,
    End,
    Load,
    RunvncSession,
    Start,
    Stop,
)
from qwen3tts_server.settings import RunvncSettings, ServerSettings
from qwen3tts_wire.errors import SpeechError, UnknownVoice
from qwen3tts_wire.messages import ContextOpen

AUDIO = base64.b64encode(b"RIFF").decode()


def check(voice: str | None, language: str | None) -> None:
    """There are the voices ``tone`` and ``v*``; English is spoken."""
    if voice != "tone" and not (voice or "").startswith("v"):
        raise UnknownVoice("No such voice.", remedy="Try 'tone'.")
    if language not in (None, "en", "English"):
        raise UnknownVoice("No such language.", remedy="Try 'en'.")


class Talk:
    """One connection."""

    def __init__(self, *, settings: ServerSettings | None = None, **runvnc: Any) -> None:
        self.now = 100.0
        self.errored: list[str] = []
        self.session = RunvncSession(
            settings or ServerSettings(runvnc=RunvncSettings(**runvnc)),
            check,
            "tones",
            self.now,
            self.errored.append,
        )
        self.loading: Init | None = None
        self.speaking: int | None = None
        """What the engine is saying."""
        self.orders: list[ContextOpen] = []
        self.text = ""
        """Of what is being said."""
        self.ended = False
        self.closed: Close | None = None
        self.heard: list[dict[str, Any] | bytes] = []
        """Everything that the client received."""
        self.read()

    def say(self, kind: str, **fields: Any) -> None:
        self.raw(json.dumps({"type": kind, **fields}))

    def raw(self, data: str | bytes) -> None:
        self.act(self.session.receive(data, self.now))

    def act(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Load(init):
                    assert self.loading is None
                    self.loading = init
                case Start(order):
                    assert self.speaking is None, "two concurrently"
                    self.orders.append(order)
                    self.speaking, self.text, self.ended = order.context_no, "", False
                case Append(text):
                    assert not self.ended
                    self.text += text
                case End():
                    assert not self.ended
                    self.ended = True
                case Stop():
                    self.speaking = None
                case Close():
                    assert self.closed is None
                    self.closed = command

    def read(self) -> list[dict[str, Any] | bytes]:
        """Take all that is due."""
        new: list[dict[str, Any] | bytes] = []
        while data := self.session.data_to_send(self.now):
            new += [each if isinstance(each, bytes) else json.loads(each) for each in data]
            self.act(self.session.sent(self.now))
        self.heard += new
        return new

    def close_code(self) -> int | None:
        """How the connection was closed, if it was."""
        return None if self.closed is None else self.closed.code

    def kinds(self) -> list[str]:
        """What is read now, frames as ``.``."""
        return [each["type"] if isinstance(each, dict) else "." for each in self.read()]

    # --- the engine ---

    def sound(self, data: bytes) -> None:
        assert self.speaking is not None
        self.session.sound(self.speaking, data)

    def finish(self) -> None:
        assert self.speaking is not None
        no, self.speaking = self.speaking, None
        self.act(self.session.ended(no))

    def fail(self, error: SpeechError) -> None:
        assert self.speaking is not None
        no, self.speaking = self.speaking, None
        self.act(self.session.failed(no, error))

    def load(self, voice_id: str = "v1", ref_text: str | None = None, **fields: Any) -> None:
        assert self.loading is not None
        self.loading = None
        voice = LoadedVoice(voice_id, fields.get("cached", False), ref_text)
        only_x = fields.get("x_vector_only", False)
        self.act(self.session.loaded(voice, x_vector_only=only_x, now=self.now))

    def refuse(self, error: SpeechError) -> None:
        assert self.loading is not None
        self.loading = None
        self.act(self.session.refused(error, self.now))

    def ready(self) -> Talk:
        """With a voice."""
        self.say("init", voice_id="tone")
        self.load("tone", cached=True)
        self.read()
        return self

    def generate(self, frames: int = 0, kind: str = "generate_stream", **fields: Any) -> None:
        """Ask for something and let the engine make so many frames of it."""
        self.say(kind, text=fields.pop("text", "Hello."), **fields)
        self.sound(bytes(FRAME * frames))

    def pass_time(self, seconds: float) -> None:
        """Move the clock, with a tick at every deadline on the way."""
        end = self.now + seconds
        for _ in range(1000):
            due = self.session.next_deadline(self.now)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            self.act(self.session.tick(self.now))
            self.read()
        else:
            raise AssertionError("the session never sleeps")
        self.now = end
