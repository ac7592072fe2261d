"""Fuzz target: the runvnc protocol's session, with an engine and a clock beside it."""

from __future__ import annotations

from typing import Any

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_server.dialects.runvnc.messages import FRAME
from qwen3tts_wire.errors import BadRequest, EngineFailed
from tests.fuzz.target import Target, steps, story
from tests.server.runvnc.client import Talk

ANSWERS = {"connected", "ready", "audio_start", "audio_end", "pong", "error"}
INIT = b't{"type":"init","voice_id":"tone"}'
SPEAK = b't{"type":"generate_stream","text":"Hello.","language":"Auto","initial_chunk_tokens":4}'


class Listener:
    """Reads what a server says and holds it to its promises."""

    def __init__(self) -> None:
        self.open = False
        """Whether something is being said."""

    def hear(self, messages: list[dict[str, Any] | bytes], waiting: bool) -> None:
        for message in messages:
            if isinstance(message, bytes):
                assert len(message) == FRAME
                assert self.open, "a frame outside of speech"
                continue
            kind = message["type"]
            assert kind in ANSWERS
            if kind == "audio_start":
                assert not self.open, "the new begins before the old ended"
                self.open = True
            elif kind == "audio_end":
                # Without a beginning only where what waited for a voice was taken back.
                assert self.open or waiting
                self.open = False
            elif kind == "error":
                assert message["message"]
                assert message["code"]
                assert message["ends"] in ("speech", "connection", "none")
                if message["ends"] == "speech":
                    assert self.open
                    self.open = False


def run_runvnc(data: bytes) -> None:
    talk = Talk(idle_s=60.0, max_waiting=8, max_message_chars=2000, max_init_bytes=3000)
    listener = Listener()
    waited = False
    for kind, rest in steps(data):
        waited = waited or talk.loading is not None
        _step(talk, kind, rest)
        if kind in "rw":
            listener.hear(talk.heard, waited)
            talk.heard.clear()
        assert talk.session.backlog < 64_000
    if talk.loading is not None:
        talk.refuse(BadRequest("No."))
    while talk.loading is not None:
        talk.load()
    if talk.speaking is not None and talk.close_code() is None:
        talk.finish()
    talk.read()
    for _ in range(3000):
        due = talk.session.next_write(talk.now)
        if due is None:
            break
        talk.now = due + 1e-6
        talk.read()
    listener.hear(talk.heard, waited)
    assert not listener.open or talk.close_code() is not None
    talk.pass_time(100.0)
    assert talk.close_code() is not None
    assert talk.speaking is None


def _step(talk: Talk, kind: str, rest: bytes) -> None:
    if kind in "tb":
        talk.raw(rest.decode("utf-8", "replace") if kind == "t" else rest)
    elif kind == "r":
        talk.read()
    elif kind == "w":
        talk.pass_time((rest[0] if rest else 3) / 100)
        talk.read()
    elif kind == "q":
        talk.act(talk.session.drain(1.0, talk.now))
    elif kind == "l" and talk.loading is not None:
        talk.load("v" + str(len(rest)), "text")
    elif kind == "n" and talk.loading is not None:
        talk.refuse(BadRequest("No."))
    elif kind == "z":
        # Late news of something that is over.
        talk.session.sound(0, bytes(400))
        talk.act(talk.session.ended(0))
        talk.act(talk.session.failed(0, EngineFailed("broke")))
        talk.act(talk.session.refused(BadRequest("No."), talk.now)) if not talk.loading else None
        voice = LoadedVoice("v", cached=True)
        if talk.loading is None:
            talk.act(talk.session.loaded(voice, x_vector_only=False, now=talk.now))
    elif talk.speaking is not None:
        if kind == "p":
            talk.sound(bytes(7 * len(rest)))
        elif kind == "e":
            talk.finish()
        elif kind == "x":
            talk.fail(EngineFailed("broke"))


TARGETS: dict[str, Target] = {
    "runvnc": Target(
        run_runvnc,
        "What is said begins and ends once, with whole frames only in between, whatever comes.",
        (
            story(INIT, "l", "r", SPEAK, b"p" + bytes(60), "r", "e", "r"),
            story(INIT, "l", SPEAK, b"p" + bytes(60), "r", b't{"type":"cancel"}', "r"),
            story(
                INIT,
                "l",
                b't{"type":"text","text":"Hello ","final":false}',
                b't{"type":"text","text":"you.","final":true}',
                "e",
            ),
            story(
                b't{"type":"init","ref_audio_base64":"UklGRg==","ref_text":"Hi."}',
                b't{"type":"generate","text":"Hello."}',
                b't{"type":"ping"}',
                "labc",
                b"p" + bytes(90),
                "w\x05",
                "e",
            ),
        ),
        words=(
            b'"init"',
            b'"generate"',
            b'"cancel"',
            b'"text"',
            b'"final":true',
            b'"voice_id":"tone"',
            b'"x_vector_only":true',
            b"\\ud83d",
        ),
        stepwise=True,
    )
}
