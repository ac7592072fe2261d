"""Which voice is wanted, and what after it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mr_qwen3tts.settings import Settings
from mr_qwen3tts.voices.recordings import Access
from mr_qwen3tts.voices.request import VoiceRequest, refusal_of, requested_voice


def names(wish: VoiceRequest) -> list[str | None]:
    return [each.name for each in wish.singly()]


def test_the_call_goes_first_then_the_persona_then_the_settings() -> None:
    persona = {"voice_id": "Persona", "voice_samples": ["/p/b.wav", "/p/a.wav"], "name": "x"}
    settings = Settings(voice="Default", ref_audio="/r.wav", ref_text="Hello.")
    wish = requested_voice("Argument", persona, settings)
    assert names(wish) == ["Argument", "Persona", "/p/a.wav", "/p/b.wav", "/r.wav", "Default"]
    assert names(requested_voice(None, persona, settings))[0] == "Persona"
    assert names(requested_voice("", {}, settings)) == ["/r.wav", "Default"]
    assert names(requested_voice(None, None, Settings())) == []


def test_words_go_only_with_the_recording_that_says_them() -> None:
    settings = Settings(voice="/d.wav", ref_audio="/r.wav", ref_text="Settings.")
    persona = {"voice_id": "/p.wav", "voice_samples": ["/s.wav"], "ref_text": "Persona."}
    wish = requested_voice("Anna", persona, settings)
    assert [each.ref_text for each in wish.singly()] == [
        None,
        "Persona.",
        "Persona.",
        "Settings.",
        None,
    ]


@pytest.mark.parametrize(
    "where",
    [
        "/a.wav", "//host/a.wav", "~/a.wav", "~root", "./a.wav", "../a.wav", "voices/a.wav",
        "http://169.254.169.254/latest", "HTTPS://h/a", "file:///etc/passwd", "FILE:/a", "ftp://h",
        "data:audio/wav;base64,AA", "s3://b/a", "C:\\a.wav", "\\\\host\\a.wav", "clone:/a.wav",
        "clone:http://h/a", "/voice/anna.wav", "Anna\n/a.wav", "a" * 200, "clone:", "$HOME", "%2fa",
    ],
)  # fmt: skip
def test_a_model_names_no_file_and_no_address(where: str) -> None:
    assert names(requested_voice(where, {"voice_id": "/p.wav"}, Settings())) == ["/p.wav"]
    refusal = refusal_of(where, ["Vivian", "Ryan"])
    assert refusal is not None
    assert refusal.code == "bad_request"
    assert "Vivian, Ryan" in refusal.remedy
    assert "clone:NAME" in refusal.remedy


@pytest.mark.parametrize(
    "name", ["Vivian", "clone:Anna", "Clone:Anna Lee", "en-us+f3", "f" * 64, "Zoë", "小明", "a.b_c"]
)
def test_a_model_may_name_the_voices_of_the_server(name: str) -> None:
    assert names(requested_voice(name, None, Settings())) == [name]
    assert refusal_of(name) is None


def test_a_personas_files_lie_in_folders_and_those_of_the_settings_anywhere() -> None:
    persona = {"voice_id": "/p.wav", "voice_samples": ["/s.wav"]}
    settings = Settings(
        voice="/d.wav", ref_audio="/r.wav", recordings_dir="/v", private_recordings=True
    )
    theirs, ours = Access(("personas", "/v"), True), Access(None, True)
    accesses = [each.access for each in requested_voice(None, persona, settings).singly()]
    assert accesses == [theirs, theirs, ours, ours]
    usual = [each.access for each in requested_voice(None, persona, Settings()).singly()]
    assert usual == [Access(("personas",), False)] * 2


@pytest.mark.parametrize("nothing", [None, "", "  ", "default", "Default", "none", "null", 7, []])
def test_no_voice_is_no_wish(nothing: object) -> None:
    assert requested_voice(nothing, {"voice_id": nothing}, Settings()) == VoiceRequest()


@pytest.mark.parametrize(
    "persona",
    [None, 5, [], {"voice_samples": "a.wav"}, {"voice_samples": [None, 3]}, {"voice_id": {}}],
)
def test_a_strange_persona_is_no_error(persona: Any) -> None:
    assert requested_voice("Anna", persona, Settings()) == VoiceRequest("Anna")


def test_a_wish_can_be_a_key_and_is_the_same_each_time() -> None:
    persona = {"voice_samples": ["/p/a.wav"]}
    assert {requested_voice(None, persona, Settings()): 1}[
        requested_voice("", dict(persona), Settings())
    ] == 1


def test_what_may_be_a_key_in_an_address_is_not_shown() -> None:
    assert str(VoiceRequest("https://host/a.wav?token=s3cret#x")) == "https://host/a.wav"
    assert str(VoiceRequest(None, ("/p/a.wav", "/p/b.wav"))) == "/p/a.wav, /p/b.wav"
    assert str(VoiceRequest()) == "the server's own voice"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
PERSONA = st.dictionaries(
    st.sampled_from(["voice_id", "voice_samples", "ref_text", "name"]), JSON | st.lists(st.text())
)


@given(JSON, PERSONA | JSON)
def test_whatever_a_model_or_a_persona_says_there_is_a_wish(voice: Any, persona: Any) -> None:
    wish = requested_voice(voice, persona, Settings())
    assert hash(wish) == hash(requested_voice(voice, persona, Settings()))
    assert all(each.name for each in wish.singly())
    assert len(str(wish)) < 200
