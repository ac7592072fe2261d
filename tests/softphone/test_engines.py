from __future__ import annotations

import dataclasses
import io
import wave
from typing import Any, cast

import pytest

from qwen3tts_phone.softphone.engines import (
    MAX_CLONED_VOICES,
    CannotClone,
    NoSuchEngine,
    ReferenceVoice,
    SpeechEngine,
    SpeechEngines,
    check_reference,
    clone_voice,
    server_address,
    wav_seconds,
)
from qwen3tts_phone.softphone.entries import VoiceEntry
from qwen3tts_phone.softphone.settings import EngineSettings
from qwen3tts_speech.link import SpeechLink
from qwen3tts_wire.errors import BadRequest, ConnectionLost, LimitExceeded
from qwen3tts_wire.messages import Limits, SessionCreated, VoiceInfo, VoiceReady

SESSION = SessionCreated(
    protocol="qwen3tts.speech.v1",
    engine="qwen3",
    model="Qwen3-TTS Base",
    voices=(VoiceInfo("anna", "Anna", "de"), VoiceInfo("ben", "Ben", "en")),
    formats=(),
    limits=Limits(),
    modes=("live",),
    features=("voice_loading",),
)


def wav_bytes(seconds: float = 0.5) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(8000 * seconds)))
    return out.getvalue()


class Client:
    """A speech server that makes voices."""

    def __init__(self, session: SessionCreated = SESSION, *, hears: bool = True) -> None:
        self.session = session
        self.closed = False
        self.hears = hears
        self.loads: list[tuple[str | None, bool]] = []

    @property
    def draining(self) -> Any:
        return self

    def is_set(self) -> bool:
        return False

    async def load_voice(
        self, audio: bytes, ref_text: str | None = None, *, x_vector_only: bool = False
    ) -> VoiceReady:
        self.loads.append((ref_text, x_vector_only))
        if ref_text is None and not x_vector_only and not self.hears:
            raise BadRequest("What is said in it is not known.")
        return VoiceReady("v1", "clone:1")

    async def close(self) -> None:
        self.closed = True


def engines(**clients: Client | Exception) -> SpeechEngines:
    made = SpeechEngines(EngineSettings(f"ws://{name}/v1/speech", name) for name in clients)
    for each in made.all:
        answer = clients[each.settings.name]

        async def connect(url: str, answer: Client | Exception = answer) -> Client:
            if isinstance(answer, Exception):
                raise answer
            return answer

        each.link = SpeechLink(each.settings.url, connect=cast(Any, connect))
    return made


async def test_each_engine_shows_its_voices_and_what_it_can() -> None:
    plain = dataclasses.replace(SESSION, features=(), voices=())
    found = engines(Qwen=Client(), Other=Client(plain))
    await found.open()
    first, second = found.entries()
    assert (first.id, first.name, first.kind, first.default_voice) == (
        "qwen",
        "Qwen",
        "qwen3",
        "anna",
    )
    assert first.can_clone
    assert [each.id for each in first.voices] == ["anna", "ben"]
    assert (second.can_clone, second.default_voice, second.voices) == (False, "", ())


async def test_an_engine_that_is_away_says_so_and_the_others_go_on() -> None:
    found = engines(Away=ConnectionLost("Nothing answers there."), Qwen=Client())
    await found.open()
    assert "Nothing answers" in found.entries()[0].note
    assert found.entries()[1].note == ""


async def test_where_no_engine_answers_nothing_is_served() -> None:
    found = engines(Away=ConnectionLost("Nothing answers there."))
    with pytest.raises(ConnectionLost, match="Nothing answers"):
        await found.open()


async def test_an_engine_is_chosen_by_its_id_and_the_first_without() -> None:
    found = engines(A=Client(), B=Client())
    assert found.chosen(None).id == "a"
    assert found.chosen("b").id == "b"
    with pytest.raises(NoSuchEngine, match="a, b"):
        found.chosen("c")


def test_engines_without_names_have_ids_of_their_own() -> None:
    found = SpeechEngines(
        [EngineSettings("ws://a/"), EngineSettings("ws://b/"), EngineSettings("ws://c/", "!")]
    )
    assert [each.id for each in found.all] == ["engine-1", "engine-2", "engine-3"]
    twins = SpeechEngines([EngineSettings("ws://a/", "X"), EngineSettings("ws://b/", "x")])
    assert [each.id for each in twins.all] == ["x", "engine-2"]


def test_people_are_shown_no_secret_of_an_address() -> None:
    assert server_address("wss://user:password@host:1/v1/speech?key=1") == "host:1"
    assert server_address("ws://[::1") == "server"


async def test_a_voice_is_made_and_offered_from_then_on() -> None:
    client = Client()
    engine = engines(Qwen=client).all[0]
    made = await clone_voice(engine, ReferenceVoice(wav_bytes(), "It says this.", "Mine"), 30.0)
    assert made == VoiceEntry("clone:1", "Mine", "")
    assert client.loads == [("It says this.", False)]
    assert engine.entry().voices[0] == made
    engine.add(made)
    assert [each.id for each in engine.entry().voices].count("clone:1") == 1


async def test_where_nobody_hears_the_words_the_colour_of_the_voice_is_taken() -> None:
    client = Client(hears=False)
    engine = engines(Qwen=client).all[0]
    await clone_voice(engine, ReferenceVoice(wav_bytes()), 30.0)
    assert client.loads == [(None, False), (None, True)]


async def test_an_engine_that_makes_no_voices_says_which_do() -> None:
    engine = engines(Plain=Client(dataclasses.replace(SESSION, features=()))).all[0]
    with pytest.raises(CannotClone, match="qwen3"):
        await clone_voice(engine, ReferenceVoice(wav_bytes()), 30.0)


def test_a_recording_is_bounded_before_it_is_sent() -> None:
    check_reference(ReferenceVoice(wav_bytes()), 10_000_000, 30.0)
    with pytest.raises(BadRequest, match="empty"):
        check_reference(ReferenceVoice(b""), 100, 30.0)
    with pytest.raises(LimitExceeded, match="bytes"):
        check_reference(ReferenceVoice(b"x" * 101), 100, 30.0)
    with pytest.raises(LimitExceeded, match="lasts"):
        check_reference(ReferenceVoice(wav_bytes(seconds=2.0)), 10_000_000, 1.5)
    assert wav_seconds(b"OggS") is None


def test_only_so_many_made_voices_are_shown() -> None:
    engine = SpeechEngine("a", EngineSettings("ws://a/"), SpeechLink("ws://a/"), SESSION)
    for number in range(MAX_CLONED_VOICES + 5):
        engine.add(VoiceEntry(f"clone:{number}", "", ""))
    assert len(engine.made) == MAX_CLONED_VOICES
    assert engine.made[0].id == f"clone:{MAX_CLONED_VOICES + 4}"
