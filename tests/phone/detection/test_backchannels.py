"""Lists of backchannels, and the judgement of words by them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.backchannels import (
    has_word_list,
    judge_words,
    word_lists,
    words_of,
)

LANGUAGES = ("zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Mm-hmm.", "en"),
        ("Mmm hmm", "en"),
        ("Uh-huh.", "en"),
        ("Yeah, yeah, okay.", "en-US"),
        ("Yeahhhh.", "en"),
        ("That’s right.", "en"),  # noqa: RUF001
        ("I see. Go on.", "en"),
        ("Ach so. Ja, genau.", "de"),
        ("D'accord.", "fr"),
        ("Ah oui, bien sûr.", "fr"),
        ("Ajá, claro que sí.", "es"),
        ("Va bene, ho capito.", "it"),
        ("Tá bom.", "pt"),
        ("Угу, всё ясно.", "ru"),  # noqa: RUF001
        ("嗯", "zh"),
        ("嗯，好的，明白了。", "zh"),  # noqa: RUF001
        ("はい、そうですね。", "ja"),
        ("네, 알겠습니다.", "ko"),
    ],
)
def test_a_backchannel(text: str, language: str) -> None:
    assert judge_words(text, [language]) == ("backchannel", "words")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Stop.", "en"),
        ("No.", "en"),
        ("Yes, but", "en"),
        ("Okay, hold on.", "en"),
        ("Moment mal.", "de"),
        ("Attendez.", "fr"),
        ("No.", "es"),
        ("Aspetti.", "it"),
        ("Não.", "pt"),
        ("Подождите.", "ru"),
        ("不是。", "zh"),
        ("等一下", "zh"),
        ("ちょっと待って", "ja"),
        ("아니요.", "ko"),
    ],
)
def test_a_word_that_stops(text: str, language: str) -> None:
    assert judge_words(text, [language]) == ("interruption", "stop_word")


@pytest.mark.parametrize(
    ("text", "languages", "verdict"),
    [
        ("Yes, the second one.", ["en"], ("interruption", "words")),
        ("Hmm?", ["en"], ("interruption", "words")),
        ("Um.", ["en"], ("interruption", "words")),
        ("okay sure " * 4, ["en"], ("interruption", "words")),
        ("Got it. Got it. Got it. Got", ["en"], ("backchannel", "words")),  # Whisper's loops
        ("okay " * 7, ["en"], ("backchannel", "words")),
        ("Really?", ["en"], ("backchannel", "words")),
        ("嗯？", ["zh"], ("interruption", "words")),  # noqa: RUF001
        ("嗯" * 30, ["zh"], ("backchannel", "words")),  # a run of one sign is one hum
        ("好的" * 13, ["zh"], ("interruption", "words")),
        ("Mm-hmm.", [], ("interruption", "no_list")),
        ("Mm-hmm.", ["cy", ""], ("interruption", "no_list")),
        ("Mm-hmm.", ["cy", "en"], ("backchannel", "words")),
        ("Genau.", ["en", "de"], ("backchannel", "words")),
        ("Nein.", ["en", "de"], ("interruption", "stop_word")),
        ("", ["en"], ("noise", "no_words")),
        (" ... ", ["en"], ("noise", "no_words")),
        ("(coughing)", ["en"], ("noise", "sound")),
        ("[Music] *sighs*", [], ("noise", "sound")),
    ],
)
def test_other_texts(text: str, languages: list[str], verdict: tuple[str, str]) -> None:
    assert judge_words(text, languages) == verdict


def test_there_is_a_list_for_each_language_of_the_voice() -> None:
    assert set(word_lists()) == set(LANGUAGES)
    assert all(map(has_word_list, LANGUAGES))
    assert has_word_list("pt-BR")
    assert has_word_list("zh_CN")
    assert not has_word_list("cy")


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_word_is_judged_as_it_is_listed(language: str) -> None:
    listed = word_lists()[language]
    assert not listed.backchannels & listed.stops
    assert () not in listed.backchannels | listed.stops
    for phrase in listed.backchannels:
        assert judge_words(" ".join(phrase), [language])[0] == "backchannel", phrase
    for phrase in listed.stops:
        assert judge_words(" ".join(phrase), [language]) == ("interruption", "stop_word"), phrase
        assert judge_words(f"x {' '.join(phrase)} x", [language])[1] == "stop_word", phrase


@given(st.text(max_size=200), st.lists(st.sampled_from([*LANGUAGES, "cy", ""]), max_size=3))
def test_any_text_has_a_verdict(text: str, languages: list[str]) -> None:
    verdict, _ = judge_words(text, languages)
    assert (verdict == "noise") == (not words_of(text))


def test_a_language_has_one_code_for_pauses_and_backchannels() -> None:
    assert judge_words("嗯。", ["cmn-Hans"]) == ("backchannel", "words")
    assert has_word_list("yue")
