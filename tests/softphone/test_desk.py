from __future__ import annotations

from typing import Any

import pytest

from qwen3tts_phone.softphone.captions import Captions
from qwen3tts_phone.softphone.desk import Desk
from qwen3tts_phone.softphone.errors import NoSuchEngine
from qwen3tts_phone.softphone.page_voice import PageVoice
from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
from qwen3tts_speech.utterance import VoiceOptions
from qwen3tts_wire.errors import BadRequest
from tests.fakes import FakeClock

ENGINES = (EngineSettings("ws://a/", "A"), EngineSettings("ws://b/", "B"))


def desk(**changes: Any) -> Desk:
    settings = SoftphoneSettings(engines=ENGINES, **changes)
    return Desk(settings, FakeClock(), None, None, None)


def test_the_settings_voice_is_one_of_the_first_engines() -> None:
    made = desk(voice="anna", language="de", options={"speed": 1.2})
    first, second = made.engines.all
    assert made.options(first, None, None) == VoiceOptions("anna", "de", {"speed": 1.2})
    assert made.options(second, None, None) == VoiceOptions(None, None, {"speed": 1.2})
    assert made.options(first, "ben", None) == VoiceOptions("ben", None, {"speed": 1.2})
    assert made.options(second, "carl", "en") == VoiceOptions("carl", "en", {"speed": 1.2})


@pytest.mark.parametrize(
    ("codecs", "wish", "chosen"),
    [
        (("opus", "PCMU"), "auto", "auto"),
        (("opus", "PCMU"), "PCMU", "PCMU"),
        (("PCMU", "opus"), "auto", "PCMU"),
        (("opus",), "auto", "opus"),
        (("PCMU",), "auto", "PCMU"),
    ],
)
def test_the_codec_is_the_pages_wish_or_the_settings_first(
    codecs: tuple[str, ...], wish: str, chosen: str
) -> None:
    assert desk(codecs=codecs).codec(wish) == chosen


def test_a_codec_that_is_not_offered_is_refused() -> None:
    with pytest.raises(BadRequest, match="opus is not offered"):
        desk(codecs=("PCMU",)).codec("opus")


async def test_an_engine_that_is_none_leaves_the_choice_as_it_was() -> None:
    made = desk(voice="anna")
    voice = PageVoice(made, Captions(lambda message: None, made.clock))
    voice.choose("b", "carl", "en")
    with pytest.raises(NoSuchEngine):
        voice.choose("c", None, None)
    assert (voice.engine.id, voice.options.voice) == ("b", "carl")


def test_a_page_without_a_telephone_is_offered_none() -> None:
    welcome = desk().welcome("s", resumed=False, call_id=None)
    assert not welcome.sip.dial
    assert not welcome.sip.listen
    assert welcome.calls == ()
