"""Tags and names of all of eSpeak NG's languages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from qwen3tts_engine.base import Voice
from qwen3tts_engine.embedded.library import EspeakLibrary
from qwen3tts_engine.embedded.voices import EspeakCatalogue
from qwen3tts_wire.names import language_name, tag_of

WELL_FORMED = re.compile(
    r"[a-z]{2,3}(-[A-Z][a-z]{3})?(-([A-Z]{2}|[0-9]{3}))?(-([a-z0-9]{5,8}|[0-9][a-z0-9]{3}))*"
    r"(-x(-[a-z0-9]{1,8})+)?|art-x-[a-z]{1,8}"
)
"""RFC 5646 section 2.1, without extended languages and extensions."""
REGIONS = {"AR", "BE", "BR", "CH", "FR", "GB", "LV", "MX", "US", "VN", "029", "419"}
"""Regions that eSpeak NG's voices are of: each is the country of its accent."""
VARIANTS = {"valencia", "scotland", "pinyin", "jyutping"}
"""Registered in IANA's list of language subtags."""
SCRIPTS = {"Latn", "Shaw", "Qaaa"}


@cache
def catalogue() -> EspeakCatalogue:
    loader = pytest.importorskip("espeakng_loader")
    library = EspeakLibrary(Path(loader.get_library_path()), Path(loader.get_data_path()))
    return EspeakCatalogue(library.voices(), library.variants(), "en-us+f3")


def voices() -> tuple[Voice, ...]:
    return catalogue().voices


def test_every_tag_is_well_formed_and_its_parts_are_registered() -> None:
    assert len(voices()) > 130
    for voice in voices():
        tag = voice.language
        assert WELL_FORMED.fullmatch(tag), tag
        registered = tag.partition("-x-")[0].split("-")[1:]
        assert set(registered) <= REGIONS | VARIANTS | SCRIPTS, tag


def test_every_language_has_a_name_and_no_country_that_is_not_its_own() -> None:
    for voice in voices():
        name = language_name(voice.language)
        assert name != voice.language, voice
        assert name[0].isupper()
        for wrong in ("Vatican", "Chile", "Bosnia and", "X-", "(x"):
            assert wrong not in name


def test_names_and_ids_belong_together() -> None:
    """A voice's own name and its language's have a word in common, but for synonyms."""
    synonyms = {"ga", "bn", "or", "kl", "tn", "nci"}
    for voice in voices():
        if voice.id not in synonyms:
            own = set(re.findall(r"\w+", voice.name.lower()))
            assert own & set(re.findall(r"\w+", language_name(voice.language).lower())), voice


@pytest.mark.parametrize(
    ("voice", "tag", "name"),
    [
        ("ca-va", "ca-valencia", "Valencian"),
        ("ca-ba", "ca-x-balear", "Catalan (Balearic)"),
        ("ca-nw", "ca-x-nw", "Catalan (North-western)"),
        ("ru-cl", "ru-x-classic", "Russian (Classic)"),
        ("ru-lv", "ru-LV", "Russian (Latvia)"),
        ("en-029", "en-029", "English (Caribbean)"),
        ("en-gb-x-rp", "en-GB-x-rp", "English (Received Pronunciation)"),
        ("en-us-nyc", "en-US-x-nyc", "English (New York City)"),
        ("es-419", "es-419", "Spanish (Latin America)"),
        ("cmn", "cmn", "Mandarin Chinese"),
        ("yue", "yue", "Cantonese"),
        ("hak", "hak", "Hakka Chinese"),
        ("nb", "nb", "Norwegian Bokmål"),
        ("fa-latn", "fa-Latn", "Persian (Latin script)"),
        ("chr-us-qaaa-x-west", "chr-Qaaa-US-x-west", "Cherokee (Western)"),
        ("piqd", "tlh", "Klingon"),
        ("py", "art-x-pyash", "Pyash"),
        ("smj", "smj", "Lule Sami"),
    ],
)
def test_a_voice_has_the_tag_and_the_name_of_its_language(voice: str, tag: str, name: str) -> None:
    (found,) = [each for each in voices() if each.id == voice]
    assert (found.language, language_name(found.language)) == (tag, name)


def test_every_tag_and_every_name_finds_a_voice_of_its_language() -> None:
    chosen = {voice.id: voice.language for voice in voices()}
    for voice in voices():
        by_tag = catalogue().choose(None, voice.language).id
        assert chosen[by_tag].split("-")[0] == voice.language.split("-")[0]
        name = language_name(voice.language).partition(" (")[0]
        tag = tag_of(name)
        assert tag is not None, name
        assert catalogue().choose(None, name).id
    assert catalogue().choose(None, "Valencian").id == "ca-va"
    assert catalogue().choose(None, "ca-VA").id == "ca-va"


def test_an_unknown_tag_stays_as_it_is() -> None:
    assert language_name("xx-YY") == "xx-YY"
    assert tag_of("Elbonian") is None
