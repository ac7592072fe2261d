"""Prompts: the published layouts, position for position."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_engine.qwen3.model.config import ModelConfig
from qwen3tts_engine.qwen3.model.prompt import (
    DEFAULT_LAYOUT,
    NO_TEXT,
    Layout,
    Prompt,
    Reference,
    build_prompt,
    find_language,
    find_speaker,
    language_tag,
)
from qwen3tts_wire.errors import BadRequest, BadText, LimitExceeded, UnknownVoice
from tests.tiny_models.published import PUBLISHED

NAMED = PUBLISHED["1.7b-custom_voice"]
SMALL = PUBLISHED["0.6b-custom_voice"]
DESIGN = PUBLISHED["1.7b-voice_design"]
BASE = PUBLISHED["1.7b-base"]
PAD, BOS, EOS = 151_671, 151_672, 151_673
ROLE = (151_644, 77_091, 198)
"""Text side; values of the published checkpoints, as tests know them."""
C_PAD, C_BOS = 2148, 2149
THINK, NOTHINK, THINK_BOS, THINK_EOS = 2154, 2155, 2156, 2157
TEXT = (11, 12, 13)


def positions(prompt: Prompt) -> list[tuple[object, object]]:
    """Both tracks side by side; None where there is nothing."""
    text = [None if token == NO_TEXT else token for token in prompt.text]
    return list(zip(text, prompt.codec, strict=True))


ROLES = [(token, None) for token in ROLE]


def test_custom_voice_streaming() -> None:
    prompt = build_prompt(
        NAMED, text_ids=TEXT, language="german", speaker="Ryan", layout="streaming"
    )
    assert positions(prompt) == [
        *ROLES,
        (PAD, THINK),
        (PAD, THINK_BOS),
        (PAD, 2053),
        (PAD, THINK_EOS),
        (PAD, 3061),
        (BOS, C_PAD),
        (11, C_BOS),
    ]
    assert prompt.trailing == (12, 13, EOS)
    assert prompt.prefix == 9
    assert len(prompt) == 10


def test_custom_voice_full_without_a_language() -> None:
    prompt = build_prompt(NAMED, text_ids=TEXT, speaker="ryan", layout="full")
    assert positions(prompt) == [
        *ROLES,
        (PAD, NOTHINK),
        (PAD, THINK_BOS),
        (PAD, THINK_EOS),
        (PAD, 3061),
        (BOS, C_PAD),
        (11, C_PAD),
        (12, C_PAD),
        (13, C_PAD),
        (EOS, C_PAD),
        (PAD, C_BOS),
    ]
    assert prompt.trailing == ()
    assert prompt.prefix == 8


def test_voice_design_has_no_speaker_position() -> None:
    prompt = build_prompt(
        DESIGN, text_ids=TEXT, language="en", instruct_ids=(5, 6), layout="streaming"
    )
    assert positions(prompt) == [
        (5, None),
        (6, None),
        *ROLES,
        (PAD, THINK),
        (PAD, THINK_BOS),
        (PAD, 2050),
        (PAD, THINK_EOS),
        (BOS, C_PAD),
        (11, C_BOS),
    ]
    assert prompt.prefix == 10


def test_a_cloned_voice_stands_where_the_speaker_does() -> None:
    prompt = build_prompt(BASE, text_ids=TEXT, language="en", has_x_vector=True, layout="streaming")
    assert prompt.codec[7] == "speaker"
    assert prompt.codec.count("speaker") == 1


def frame(number: int) -> tuple[int, ...]:
    return tuple(range(number, number + 16))


def test_a_reference_in_the_full_layout() -> None:
    reference = Reference((21, 22), (frame(0), frame(100), frame(200)))
    prompt = build_prompt(
        BASE, text_ids=TEXT, has_x_vector=True, layout="full", reference=reference
    )
    assert positions(prompt)[3:] == [
        (PAD, NOTHINK),
        (PAD, THINK_BOS),
        (PAD, THINK_EOS),
        (PAD, "speaker"),
        (BOS, C_PAD),
        *((token, C_PAD) for token in (21, 22, *TEXT, EOS)),
        (PAD, C_BOS),
        (PAD, frame(0)),
        (PAD, frame(100)),
        (PAD, frame(200)),
    ]
    assert prompt.trailing == ()
    assert prompt.prefix == 8 + 2


def test_a_reference_longer_than_the_text() -> None:
    codes = tuple(frame(at) for at in range(8))
    prompt = build_prompt(
        BASE,
        text_ids=TEXT,
        has_x_vector=True,
        layout="streaming",
        reference=Reference((21, 22), codes),
    )
    assert positions(prompt)[8:] == list(
        zip((21, 22, *TEXT, EOS, PAD, PAD, PAD), (C_BOS, *codes), strict=True)
    )
    assert prompt.trailing == ()
    assert prompt.prefix == 8 + 2


def test_a_reference_shorter_than_the_text() -> None:
    prompt = build_prompt(
        BASE,
        text_ids=TEXT,
        has_x_vector=True,
        layout="streaming",
        reference=Reference((21, 22), (frame(0),)),
    )
    assert positions(prompt)[8:] == [(21, C_BOS), (22, frame(0))]
    assert prompt.trailing == (*TEXT, EOS)
    assert prompt.prefix == 10
    short = build_prompt(
        BASE,
        text_ids=TEXT,
        has_x_vector=True,
        layout="streaming",
        reference=Reference((21, 22, 23), (frame(0),)),
    )
    assert short.trailing == (23, *TEXT, EOS)
    assert short.prefix == 10


def test_text_that_still_grows_has_no_end() -> None:
    prompt = build_prompt(NAMED, text_ids=TEXT, speaker="ryan", layout="growing")
    whole = build_prompt(NAMED, text_ids=TEXT, speaker="ryan", layout="streaming")
    assert prompt.trailing == (12, 13)
    assert dataclasses.replace(prompt, trailing=whole.trailing) == whole
    one = build_prompt(NAMED, text_ids=(11,), speaker="ryan", layout="growing")
    assert one.trailing == ()


@pytest.mark.parametrize(
    ("speaker", "language", "number"),
    [
        ("eric", None, 2062),
        ("eric", "auto", 2062),
        ("Eric", "Chinese", 2062),
        ("eric", "zh-CN", 2062),
        ("dylan", "zh", 2074),
        ("dylan", "english", 2050),
        ("serena", "zh", 2055),
        ("serena", "sichuan_dialect", 2062),
        ("serena", "Sichuan Dialect", 2062),
        ("dylan", "sichuan_dialect", 2062),
    ],
)
def test_a_dialect_takes_the_place_of_chinese(
    speaker: str, language: str | None, number: int
) -> None:
    prompt = build_prompt(
        NAMED, text_ids=TEXT, speaker=speaker, language=language, layout="streaming"
    )
    assert prompt.codec[3:7] == (THINK, THINK_BOS, number, THINK_EOS)


def test_instructions_count_only_where_the_model_heeds_them() -> None:
    def leading(config: ModelConfig, **voice: Any) -> tuple[int, ...]:
        prompt = build_prompt(
            config, text_ids=TEXT, instruct_ids=(5, 6), layout="streaming", **voice
        )
        return prompt.text[:2]

    assert leading(NAMED, speaker="ryan") == (5, 6)
    assert leading(DESIGN) == (5, 6)
    assert leading(SMALL, speaker="ryan") == ROLE[:2]
    assert leading(BASE, has_x_vector=True) == ROLE[:2]


def test_the_published_defaults() -> None:
    assert DEFAULT_LAYOUT == {
        "custom_voice": "full",
        "voice_design": "full",
        "base": "streaming",
    }


@given(
    text=st.lists(st.integers(0, 1000), min_size=1, max_size=40),
    said=st.lists(st.integers(0, 1000), min_size=1, max_size=40),
    count=st.integers(1, 60),
    layout=st.sampled_from(["streaming", "full"]),
    instruct=st.lists(st.integers(0, 1000), max_size=5),
)
def test_nothing_of_the_text_is_lost_and_the_prefix_is_the_voices(
    text: list[int], said: list[int], count: int, layout: Layout, instruct: list[int]
) -> None:
    def build(reference: Reference | None, text: list[int]) -> Prompt:
        return build_prompt(
            BASE,
            text_ids=text,
            has_x_vector=True,
            instruct_ids=instruct,
            layout=layout,
            reference=reference,
        )

    for reference in (None, Reference(tuple(said), tuple(frame(at) for at in range(count)))):
        prompt, other = build(reference, text), build(reference, [*text, 1001])
        assert prompt.text[: prompt.prefix] == other.text[: other.prefix]
        assert prompt.codec[: prompt.prefix] == other.codec[: other.prefix]
        fed = [*prompt.text[8:], *prompt.trailing]
        wanted = [*(said if reference else []), *text, EOS]
        assert [token for token in fed if token != PAD] == wanted
        assert prompt.codec.count(C_BOS) == 1
        assert len(prompt.text) == len(prompt.codec) == len(prompt)


@pytest.mark.parametrize(
    ("config", "voice", "remedy"),
    [
        (NAMED, {"speaker": "ryan", "has_x_vector": True}, "Base checkpoint"),
        (DESIGN, {"has_x_vector": True}, "Base checkpoint"),
        (NAMED, {"reference": Reference((1,), (frame(0),))}, "Base checkpoint"),
        (DESIGN, {"speaker": "ryan"}, "CustomVoice"),
        (BASE, {"speaker": "ryan"}, "CustomVoice"),
        (BASE, {}, "VoiceDesign"),
        (BASE, {"instruct_ids": (5,)}, "VoiceDesign"),
        (BASE, {"reference": Reference((1,), (frame(0),))}, "Clone"),
        (BASE, {"has_x_vector": True, "reference": Reference((), (frame(0),))}, "transcript"),
        (BASE, {"has_x_vector": True, "reference": Reference((1,), ())}, "recording"),
    ],
)
def test_a_voice_of_another_task_says_what_to_do(
    config: ModelConfig, voice: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        build_prompt(config, text_ids=TEXT, layout="streaming", **voice)
    assert type(caught.value) is BadRequest
    assert remedy in f"{caught.value.message} {caught.value.remedy}"


def test_a_designed_voice_goes_on_from_what_it_has_said() -> None:
    said = Reference((7, 8), (frame(0), frame(1)))
    prompt = build_prompt(DESIGN, text_ids=TEXT, layout="full", reference=said)
    assert prompt.codec[-2:] == said.codes
    assert "speaker" not in prompt.codec


def test_no_text_is_no_request() -> None:
    with pytest.raises(BadText, match="no text"):
        build_prompt(NAMED, text_ids=(), speaker="ryan", layout="full")


def test_more_than_the_model_holds_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="32768"):
        build_prompt(NAMED, text_ids=[1] * 33_000, speaker="ryan", layout="full")
    build_prompt(NAMED, text_ids=[1] * 33_000, speaker="ryan", layout="streaming")


def test_senseless_calls_are_the_callers_fault() -> None:
    reference = Reference((1,), (frame(0),))
    with pytest.raises(ValueError, match="appended"):
        build_prompt(BASE, text_ids=TEXT, has_x_vector=True, layout="growing", reference=reference)
    with pytest.raises(ValueError, match="16 codes"):
        build_prompt(
            BASE,
            text_ids=TEXT,
            has_x_vector=True,
            layout="full",
            reference=Reference((1,), ((1, 2),)),
        )


@pytest.mark.parametrize(
    ("language", "name"),
    [
        (None, None),
        ("auto", None),
        ("Auto ", None),
        ("", None),
        ("und", None),
        ("german", "german"),
        ("German", "german"),
        ("de", "german"),
        ("de-DE", "german"),
        ("de_AT", "german"),
        ("deu", "german"),
        ("ger", "german"),
        ("EN-us", "english"),
        ("pt-BR", "portuguese"),
        ("zh", "chinese"),
        ("zh-Hant-TW", "chinese"),
        ("cmn", "chinese"),
        ("ja-JP", "japanese"),
        ("ko", "korean"),
        ("beijing dialect", "beijing_dialect"),
    ],
)
def test_languages_go_by_many_names(language: str | None, name: str | None) -> None:
    assert find_language(NAMED, language) == name


@pytest.mark.parametrize("language", ["pl", "yue", "klingon", "d", "german-", "de-", "de--x", "ge"])
def test_an_unknown_language_names_what_there_is(language: str) -> None:
    with pytest.raises(UnknownVoice) as caught:
        find_language(BASE, language)
    assert language in caught.value.message
    assert "portuguese" in caught.value.remedy


def test_a_near_language_is_named_first() -> None:
    with pytest.raises(UnknownVoice) as caught:
        find_language(BASE, "germann")
    assert caught.value.remedy.startswith("Near ones: german")
    with pytest.raises(UnknownVoice, match="sichuan"):
        find_language(BASE, "sichuan_dialect")


def test_speakers_go_by_their_names() -> None:
    assert find_speaker(NAMED, "Uncle_Fu") == "uncle_fu"
    assert find_speaker(NAMED, "uncle fu") == "uncle_fu"
    assert find_speaker(NAMED, " Ono-Anna ") == "ono_anna"


@pytest.mark.parametrize(
    ("speaker", "said", "remedy"),
    [
        ("ryann", "no speaker 'ryann'", "Near ones: ryan"),
        ("xyz", "no speaker 'xyz'", "Choose one of: aiden"),
        (None, "No speaker is named", "vivian"),
        ("", "No speaker is named", "vivian"),
    ],
)
def test_an_unknown_speaker_names_what_there_is(
    speaker: str | None, said: str, remedy: str
) -> None:
    with pytest.raises(UnknownVoice) as caught:
        build_prompt(NAMED, text_ids=TEXT, speaker=speaker, layout="full")
    assert said in caught.value.message
    assert remedy in caught.value.remedy


def test_languages_have_tags(tiny_config: Callable[[str], ModelConfig]) -> None:
    tags = {name: language_tag(name) for name in tiny_config("custom_voice").talker.languages}
    assert tags["german"] == "de"
    assert tags["sichuan_dialect"] == "zh"
    assert "und" not in tags.values()
    assert language_tag("klingon") == "und"
    assert all(find_language(BASE, tag) for tag in tags.values())


@pytest.mark.parametrize("layout", ["full", "streaming", "growing"])
@pytest.mark.parametrize(
    ("config", "voice"),
    [(NAMED, {"speaker": "ryan"}), (SMALL, {"speaker": "ryan"}), (BASE, {"has_x_vector": True})],
)
def test_every_clause_has_the_voice_before_its_text(
    config: ModelConfig, voice: dict[str, Any], layout: Layout
) -> None:
    # So the timbre cannot drift over more than a clause: none follows from the one before.
    clauses = [
        build_prompt(config, text_ids=ids, language="german", layout=layout, **voice)
        for ids in ((11, 12, 13), tuple(range(20, 60)), (99,))
    ]
    heads = {(clause.text[: clause.prefix], clause.codec[: clause.prefix]) for clause in clauses}
    assert len(heads) == 1
    [(text, codec)] = heads
    # Ryan's id, or the position of the cloned voice's embedding.
    assert 3061 in codec or "speaker" in codec
    assert not {11, 20, 99} & set(text)


def test_every_clause_has_the_reference_before_its_text() -> None:
    reference = Reference((31, 32), tuple((7,) * 16 for _ in range(5)))
    for ids in ((11, 12, 13), tuple(range(40, 90))):
        prompt = build_prompt(
            BASE, text_ids=ids, language="german", has_x_vector=True, layout="full",
            reference=reference,
        )  # fmt: skip
        codes = [each for each in prompt.codec if isinstance(each, tuple)]
        assert codes[-5:] == list(reference.codes)
        at = prompt.text.index(31)
        assert prompt.text[at : at + 2 + len(ids)] == (31, 32, *ids)
