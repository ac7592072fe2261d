from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from qwen3tts_engine.base import SPEED_MAX, SPEED_MIN, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings, rate_of
from qwen3tts_engine.embedded.library import VoiceEntry
from qwen3tts_engine.embedded.voices import EspeakCatalogue
from qwen3tts_wire.errors import UnknownVoice

VOICES = (
    VoiceEntry("English (Great Britain)", "gmw/en", ((2, "en-gb"), (2, "en")), "male"),
    VoiceEntry("English (America)", "gmw/en-US", ((2, "en-us"), (3, "en")), "male"),
    VoiceEntry("English (RP)", "gmw/en-GB-x-rp", ((5, "en-gb-x-rp"), (4, "en-gb")), "male"),
    VoiceEntry("German", "gmw/de", ((5, "de"),), "male"),
    VoiceEntry("Chinese (Mandarin)", "sit/cmn", ((5, "cmn"), (5, "zh")), "male"),
    VoiceEntry("Chinese (Cantonese)", "sit/yue", ((5, "yue"), (8, "zh")), "male"),
    VoiceEntry("Cantonese, latin", "sit/yue-Latn-jyutping", ((5, "yue"), (8, "zh")), None),
    VoiceEntry("Persian (Pinglish)", "ira/fa-Latn", ((5, "fa-latn"),), "male"),
    VoiceEntry("Spanish (Latin America)", "roa/es-419", ((5, "es-419"), (6, "es-mx")), "male"),
    VoiceEntry("Norwegian", "gmq/nb", ((5, "nb"), (5, "no")), "male"),
)
VARIANTS = (
    VoiceEntry("female3", "f3", ((5, "variant"),), "female"),
    VoiceEntry("Annie", "Annie", ((5, "variant"),), "female"),
    VoiceEntry("Auntie", "aunty", ((5, "variant"),), "female"),
)


@pytest.fixture
def catalogue() -> EspeakCatalogue:
    return EspeakCatalogue(VOICES, VARIANTS, "en-us+f3")


def test_the_default_comes_first_and_every_id_once(catalogue: EspeakCatalogue) -> None:
    ids = [voice.id for voice in catalogue.voices]
    assert ids[:2] == ["en-us+f3", "en-us"]
    assert len(set(ids)) == len(VOICES) + 1
    assert "yue-latn-jyutping" in ids
    assert catalogue.voices[0].gender == "female"


def test_languages_are_told_as_bcp_47_writes_them(catalogue: EspeakCatalogue) -> None:
    languages = {voice.id: voice.language for voice in catalogue.voices}
    assert languages["en-us+f3"] == "en-US"
    assert languages["en-gb-x-rp"] == "en-GB-x-rp"
    assert languages["fa-latn"] == "fa-Latn"
    assert languages["es-419"] == "es-419"


@pytest.mark.parametrize(
    ("voice", "language", "library_name"),
    [
        (None, None, "gmw/en-US+f3"),
        ("", "auto", "gmw/en-US+f3"),
        ("en-us", None, "gmw/en-US"),
        ("EN-US", None, "gmw/en-US"),
        ("English (America)", None, "gmw/en-US"),
        ("gmw/en-US", None, "gmw/en-US"),
        ("en", None, "gmw/en-US"),
        ("de+ANNIE", None, "gmw/de+Annie"),
        ("de+Auntie", None, "gmw/de+aunty"),
        ("+Annie", None, "gmw/en-US+Annie"),
        ("+f3", "de", "gmw/de+f3"),
        ("en-us+f3", "en-GB", "gmw/en-US+f3"),
        (None, "en", "gmw/en-US+f3"),
        (None, "en-US", "gmw/en-US+f3"),
        (None, "en_GB", "gmw/en"),
        (None, "de-AT-1996", "gmw/de"),
        (None, "German", "gmw/de"),
        (None, "Chinese", "sit/cmn"),
        (None, "zh-Hans-CN", "sit/cmn"),
        (None, "zh-HK", "sit/yue"),
        (None, "es-MX", "roa/es-419"),
        (None, "no", "gmq/nb"),
        (None, "nn", "gmq/nb"),
    ],
)
def test_a_request_finds_its_voice(
    catalogue: EspeakCatalogue, voice: str | None, language: str | None, library_name: str
) -> None:
    assert catalogue.choose(voice, language).library_name == library_name


@pytest.mark.parametrize(
    ("voice", "language", "what"),
    [
        ("en-uss", None, "no voice 'en-uss'.*Near it: en-us"),
        ("germn", None, "Near it: de \\(German\\)"),
        ("en-us+anny", None, "no variant 'en-us\\+anny'.*Near it: Annie"),
        ("en-us+", None, "no variant"),
        ("de-nowhere", None, "no voice 'de-nowhere'"),
        (None, "xx", "no language 'xx'"),
        ("de", "fr", "'de' speaks de, not 'fr'"),
        ("../../etc/passwd", None, "no voice"),
    ],
)
def test_an_unknown_voice_or_language_is_refused_with_what_is_near(
    catalogue: EspeakCatalogue, voice: str | None, language: str | None, what: str
) -> None:
    with pytest.raises(UnknownVoice) as caught:
        catalogue.choose(voice, language)
    assert re.search(what, str(caught.value))
    assert caught.value.remedy


def test_a_very_long_name_is_not_repeated_in_full(catalogue: EspeakCatalogue) -> None:
    with pytest.raises(UnknownVoice) as caught:
        catalogue.choose("x" * 10_000, None)
    assert len(str(caught.value)) < 300


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine() -> AsyncIterator[EmbeddedEngine]:
    made = EmbeddedEngine(EmbeddedSettings(workers=2))
    await made.start()
    yield made
    await made.close()


TEXT = "Hello there, this is a shop with six fish. We open at nine in the morning. Are you sure?"


async def samples(engine: EmbeddedEngine, **fields: Any) -> NDArray[np.int16]:
    request = SynthesisRequest(TEXT, **fields)
    pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
    return np.frombuffer(pcm, np.int16)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("voice", ["en-us+f3", "en-us", "de", "fr-fr", "cmn"])
async def test_speed_is_a_factor_on_the_length(engine: EmbeddedEngine, voice: str) -> None:
    usual = len(await samples(engine, voice=voice))
    for speed in (SPEED_MIN, 0.75, 1.25, 1.6, 2.0, SPEED_MAX):
        length = len(await samples(engine, voice=voice, speed=speed))
        assert usual / length == pytest.approx(speed, rel=0.1)


def test_a_higher_speed_is_a_higher_rate() -> None:
    rates = [rate_of(SPEED_MIN + step * 0.01) for step in range(201)]
    assert rates == sorted(rates)
    assert (rate_of(SPEED_MIN), rate_of(1.0), rate_of(SPEED_MAX)) == (94, 175, 385)


@pytest.mark.asyncio(loop_scope="module")
async def test_every_voice_on_offer_speaks_and_none_reaches_full_scale(
    engine: EmbeddedEngine,
) -> None:
    voices = [voice.id for voice in engine.voices()]
    loudest = [f"en-us+{name}" for name in ("iven", "antonio", "klatt4", "robosoft3", "edward")]
    assert len(voices) == 139
    for voice in voices + loudest:
        sound = (await samples(engine, voice=voice, speed=2.0)).astype(np.int32)
        assert 1000 < np.abs(sound).max() < 32767, voice
