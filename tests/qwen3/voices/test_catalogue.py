from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from qwen3tts_engine.qwen3.engine.settings import Qwen3Settings
from qwen3tts_engine.qwen3.kernels.step_runner import PrefixCache
from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.voices.catalogue import VoiceCatalogue
from qwen3tts_wire.errors import UnknownVoice

Config = Callable[[str], ModelConfig]


@dataclass
class Names:
    names: Mapping[str, str] = field(default_factory=dict)


def test_named_speakers_are_found_in_any_spelling(tiny_config: Config) -> None:
    voices = VoiceCatalogue(tiny_config("custom_voice"), None)
    assert voices.voice("Uncle Fu", None) == "uncle_fu"
    assert voices.voice(None, None) == voices.listed()[0].id
    assert voices.voice(None, "en-GB") == "ryan"
    # No speaker's own language: the default speaks it.
    assert voices.voice(None, "fr") == voices.listed()[0].id
    assert voices.language("de-AT") == "german"
    assert voices.language(None) is None
    with pytest.raises(UnknownVoice):
        voices.voice("ryan", "qq")


def test_the_default_stands_first(tiny_config: Config) -> None:
    voices = VoiceCatalogue(tiny_config("custom_voice"), None, "dylan")
    assert voices.listed()[0].id == voices.voice(None, None) == "dylan"
    with pytest.raises(UnknownVoice):
        VoiceCatalogue(tiny_config("custom_voice"), None, "absent")


def test_cloned_voices_are_found_by_name_and_hash(tiny_config: Config) -> None:
    voices = VoiceCatalogue(tiny_config("base"), Names({"ann": "a" * 64, "bob": "b" * 64}))
    assert [voice.id for voice in voices.listed()] == ["clone:ann", "clone:bob"]
    assert voices.voice("clone:bob", None) == voices.voice("bob", None) == "clone:bob"
    assert voices.voice("c" * 64, None) == "c" * 64
    assert voices.voice(None, None) == "clone:ann"
    with pytest.raises(UnknownVoice, match="clone:bo") as caught:
        voices.voice("clone:bo", None)
    assert "clone:bob" in caught.value.remedy


def test_a_default_that_is_a_hash_speaks_where_none_is_named(tiny_config: Config) -> None:
    named = Names({"ann": "a" * 64})
    assert VoiceCatalogue(tiny_config("base"), named, "c" * 64).voice(None, "de") == "c" * 64
    assert VoiceCatalogue(tiny_config("base"), Names(), "c" * 64).voice("", None) == "c" * 64


def test_a_checkpoint_that_makes_voices_up_has_one(tiny_config: Config) -> None:
    voices = VoiceCatalogue(tiny_config("voice_design"), None)
    assert voices.voice(None, "de") == voices.voice("Design", None) == "design"


@dataclass(frozen=True)
class Sized:
    bytes: int


def test_beginnings_are_kept_within_a_bound() -> None:
    kept = PrefixCache(100)
    kept.put("a", Sized(60))
    kept.put("b", Sized(40))
    kept.put("too large", Sized(101))
    assert kept.get("a") is not None
    kept.put("c", Sized(30))
    # "b" was used least recently.
    assert (kept.get("b"), len(kept), kept.bytes) == (None, 2, 90)
    kept.put("c", Sized(99))
    assert kept.bytes == 90
    kept.clear()
    assert (len(kept), kept.bytes) == (0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": ""},
        {"device": "tpu"},
        {"device": "cuda:x"},
        {"dtype": "int8"},
        {"codec_dtype": "int8"},
        {"quantize": "int2"},
        {"quantize": None},
        {"slots": 0},
        {"positions": 10},
        {"lead_ms": 0.0},
        {"dry_timeout_s": float("inf")},
        {"max_waiting": -1},
        {"initial_codec_chunk_frames": 0},
        {"initial_codec_chunk_frames": "soon"},
    ],
)
def test_a_setting_that_cannot_be_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Qwen3Settings(**{"model": "x", **wrong})  # type: ignore[arg-type]


def test_settings_that_can_be() -> None:
    Qwen3Settings("x", device="cuda:1", initial_codec_chunk_frames="load", slots=None)
