from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qwen3tts_phone.softphone.engines import NoSuchEngine
from qwen3tts_phone.softphone.entries import IceEntry
from qwen3tts_phone.softphone.page_speech import MAX_QUEUED, Captions, PageVoice, TypedText
from qwen3tts_phone.softphone.services import SoftphoneServices
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
from qwen3tts_phone.softphone.webrtc.settings import IceServer
from qwen3tts_speech.link import VoiceOptions
from qwen3tts_wire.errors import BadRequest, LimitExceeded
from tests.fakes import FakeClock

ENGINES = (EngineSettings("ws://a/", "A"), EngineSettings("ws://b/", "B"))


def services(**changes: Any) -> SoftphoneServices:
    settings = SoftphoneSettings(engines=ENGINES, **changes)
    return SoftphoneServices(settings, FakeClock(), None, None, None)


def test_the_settings_voice_is_one_of_the_first_engines() -> None:
    made = services(voice="anna", language="de", options={"speed": 1.2})
    first, second = made.engines.all
    assert made.options(first, None, None) == VoiceOptions("anna", "de", {"speed": 1.2})
    assert made.options(second, None, None) == VoiceOptions(None, None, {"speed": 1.2})
    assert made.options(first, "ben", None) == VoiceOptions("ben", None, {"speed": 1.2})
    assert made.options(second, "carl", "en") == VoiceOptions("carl", "en", {"speed": 1.2})


@pytest.mark.parametrize(
    ("codecs", "requested", "chosen"),
    [
        (("opus", "PCMU"), "auto", "auto"),
        (("opus", "PCMU"), "PCMU", "PCMU"),
        (("PCMU", "opus"), "auto", "PCMU"),
        (("opus",), "auto", "opus"),
        (("PCMU",), "auto", "PCMU"),
    ],
)
def test_the_codec_is_the_pages_request_or_the_settings_first(
    codecs: tuple[str, ...], requested: str, chosen: str
) -> None:
    assert services(codecs=codecs).codec(requested) == chosen


def test_a_codec_that_is_not_offered_is_refused() -> None:
    with pytest.raises(BadRequest, match="opus is not offered"):
        services(codecs=("PCMU",)).codec("opus")


async def test_an_engine_that_is_none_leaves_the_choice_as_it_was() -> None:
    made = services(voice="anna")
    voice = PageVoice(made, Captions(lambda message: None, made.clock))
    voice.choose("b", "carl", "en")
    with pytest.raises(NoSuchEngine):
        voice.choose("c", None, None)
    assert (voice.engine.id, voice.options.voice) == ("b", "carl")


def test_a_page_without_a_telephone_is_offered_none() -> None:
    welcome = services().welcome("s", resumed=False, call_id=None)
    assert not welcome.sip.dial
    assert not welcome.sip.listen
    assert welcome.calls == ()


class Said:
    """What a call was given to say; each words' text is taken, as an utterance does."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, words: TypedText, options: VoiceOptions) -> Any:
        self.texts.append(words.take())
        return SimpleNamespace(stopped=False, on_news=None)


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> tuple[PageVoice, Said]:
    made = services(text_chars=40)
    captions = Captions(lambda message: None, made.clock)
    monkeypatch.setattr(captions, "add", lambda utterance, number: None)
    return PageVoice(made, captions), Said()


def test_words_typed_before_the_call_is_up_are_said_in_order_when_it_is(
    typing: tuple[PageVoice, Said],
) -> None:
    voice, said = typing
    voice.type(1, "Good ")
    voice.type(1, "morning. ")
    voice.type_end(1)
    voice.type(2, "How are you? ")
    assert said.texts == []
    voice.begin(said)
    voice.type(3, "Now ")
    assert said.texts == ["Good morning. ", "How are you? ", "Now "]


def test_what_waits_for_the_call_is_bounded_and_can_be_dropped(
    typing: tuple[PageVoice, Said],
) -> None:
    voice, said = typing
    for number in range(MAX_QUEUED):
        voice.type(number, "word ")
    with pytest.raises(LimitExceeded, match="40 characters"):
        voice.type(MAX_QUEUED - 1, 40 * "x")
    with pytest.raises(LimitExceeded, match="wait for the call"):
        voice.type(MAX_QUEUED, "word ")
    voice.drop_queued()
    voice.type(MAX_QUEUED, "after ")
    voice.begin(said)
    assert said.texts == ["after "]


def test_a_page_learns_the_ice_servers_that_are_set_and_no_others() -> None:
    assert services().welcome("s", resumed=False, call_id=None).ice_servers == ()
    servers = (IceServer("stun:stun.example.org"), IceServer("turn:turn.example.org", "u", "p"))
    welcome = services(ice_servers=servers).welcome("s", resumed=False, call_id=None)
    assert welcome.ice_servers == (
        IceEntry("stun:stun.example.org"),
        IceEntry("turn:turn.example.org", "u", "p"),
    )
