"""The kind of a text's end, in ten languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_phone.detection.turn_text.reading import Asked, TextEnd, asked_for, read_end
from qwen3tts_phone.detection.turn_text.words import LANGUAGES, Expectation, turn_words


def end(language: str, text: str, asked: str = "") -> TextEnd | None:
    """How the text ends after the agent's words."""
    words = turn_words(language, text)
    assert words is not None
    return read_end(text, words, asked_for(asked, words))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("zh", "我想要预订一个房间,因为"),
        ("en", "I would like to book a table for"),
        ("fr", "Je voudrais réserver une table pour"),
        ("de", "Ich möchte einen Tisch reservieren und"),
        ("it", "Vorrei prenotare un tavolo per"),
        ("ja", "予約をしたいのですけど"),
        ("ko", "내일 예약하고 싶은데"),
        ("pt", "Eu gostaria de reservar uma mesa para"),
        ("ru", "Я хотел бы заказать столик на"),
        ("es", "Quisiera reservar una mesa para"),
    ],
)
def test_a_sentence_that_ends_in_a_function_word_goes_on(language: str, text: str) -> None:
    assert end(language, text) is TextEnd.OPEN_WORD
    assert end(language, f"{text}.") is TextEnd.OPEN_WORD, "a recogniser's full stop tells nothing"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("zh", "谢谢。"),
        ("en", "No, thank you."),
        ("fr", "Non merci !"),
        ("de", "Nein, danke."),
        ("it", "No, grazie."),
        ("ja", "はい、お願いします。"),
        ("ko", "네, 맞습니다."),
        ("pt", "Não, obrigado."),
        ("ru", "Да, конечно."),
        ("es", "Sí, por favor."),
    ],
)
def test_a_short_answer_is_complete(language: str, text: str) -> None:
    assert end(language, text) is TextEnd.ANSWER


@pytest.mark.parametrize(
    ("language", "text", "asked", "complete"),
    [
        ("zh", "一三八", "请说您的六位验证码。", "一三八零零零"),
        ("en", "five five five", "What is your six-digit number?", "five five five oh one two"),
        ("fr", "cinq cinq cinq", "Votre code à 6 chiffres ?", "cinq cinq cinq un deux trois"),
        ("de", "fünf fünf", "Ihre vierstellige Nummer?", "fünf fünf zwei zwo"),
        ("it", "uno due tre", "Il codice di sei cifre?", "uno due tre quattro cinque sei"),
        ("ja", "一二三", "四桁の番号をお願いします。", "一二三四"),
        ("ko", "일 이 삼", "4자리 비밀번호를 말씀해 주세요.", "일 이 삼 사"),
        ("pt", "um dois três", "O código de quatro dígitos?", "um dois três quatro"),
        ("ru", "один два три", "Назовите четырёхзначный код.", "один два три четыре"),
        ("es", "uno dos tres", "¿Su clave de cuatro dígitos?", "uno dos tres cuatro"),
    ],
)
def test_digits_are_waited_for_until_there_are_as_many_as_were_asked_for(
    language: str, text: str, asked: str, complete: str
) -> None:
    assert end(language, text, asked) is TextEnd.DIGITS
    assert end(language, complete, asked) is TextEnd.DIGITS_COMPLETE


@pytest.mark.parametrize(
    ("text", "asked", "kind"),
    [
        ("My number is 555", "", TextEnd.DIGITS),
        ("It's 555 double", "", TextEnd.DIGITS),
        ("oh seven double five", "", TextEnd.DIGITS),
        ("415 555 0199", "Your telephone number?", TextEnd.DIGITS_LONG),
        ("At nine", "", TextEnd.NUMBER),
        ("Four.", "For how many people?", TextEnd.ANSWER),
        ("This one", "", TextEnd.PLAIN),
        ("I don't have one, sorry", "Your telephone number?", TextEnd.PLAIN),
        ("Sure.", "Can I have your number?", TextEnd.CONSENT),
        ("Sure.", "Shall I go on?", TextEnd.ANSWER),
        ("j-o-h-n", "", TextEnd.SPELLING),
        ("J O H", "", TextEnd.SPELLING),
        ("S M I, you", "Could you spell that?", TextEnd.SPELLING),
        ("Smith", "Could you spell that?", TextEnd.SPELLING),
        ("Alpha bravo", "", TextEnd.SPELLING),
        ("I'd like a", "", TextEnd.OPEN_WORD),
        ("john dot smith at", "", TextEnd.EMAIL),
        ("e k l add", "And your email address?", TextEnd.EMAIL),
        ("john at gmail dot com", "And your email address?", TextEnd.EMAIL_COMPLETE),
        ("It's john@gmail.com.", "", TextEnd.EMAIL_COMPLETE),
        ("john@gmail.", "", TextEnd.EMAIL),
        ("I'm afraid we only use the telephone", "And your email address?", TextEnd.PLAIN),
        ("Monday", "", TextEnd.ITEM),
        ("Monday, Tuesday.", "", TextEnd.LIST),
        ("Monday, Tuesday and Friday", "", TextEnd.LIST_COMPLETE),
        ("Apples, pears, plums.", "", TextEnd.LIST),
        ("Apples, pears and plums.", "", TextEnd.PLAIN),
        ("Um...", "", TextEnd.FILLER),
        ("Are you open tomorrow?", "", TextEnd.QUESTION),
        ("The heating is broken.", "", TextEnd.PLAIN),
        ("?!", "", None),
        ("", "", None),
    ],
)
def test_english_in_detail(text: str, asked: str, kind: TextEnd | None) -> None:
    assert end("en", text, asked) is kind


@pytest.mark.parametrize(
    ("language", "text", "kind"),
    [
        ("ja", "予約をお願いします。", TextEnd.CLOSED),
        ("ko", "예약하고 싶어요", TextEnd.CLOSED),
        ("zh", "明天可以吗", TextEnd.CLOSED),
        ("ja", "えっと", TextEnd.FILLER),
        ("zh", "嗯", TextEnd.ANSWER),
        ("fr", "C'est à l'angle de la rue Victor", TextEnd.PLAIN),
        ("de", "Am Montag", TextEnd.PLAIN),
        ("es", "La tecla de número.", TextEnd.PLAIN),
    ],
)
def test_other_languages_in_detail(language: str, text: str, kind: TextEnd) -> None:
    assert end(language, text) is kind


def test_the_last_sentences_of_the_agent_ask() -> None:
    words = turn_words("en")
    assert words is not None
    assert asked_for("What is your number? Thank you. Anything else? Fine.", words) == Asked()
    assert asked_for("Thank you. And your number, please?", words) == Asked(Expectation.DIGITS)
    assert asked_for("Your 12 digit number?", words).digits == 12
    assert asked_for("And your email address?", words).what is Expectation.EMAIL


def test_languages_are_found_by_code_or_script() -> None:
    assert turn_words("pt-BR") is turn_words("PT")
    assert turn_words("cmn") is turn_words("zh_CN") is turn_words("", "谢谢")
    assert turn_words("", "ありがとう") is turn_words("ja")
    assert turn_words("", "감사합니다") is turn_words("ko")
    assert turn_words("", "Thank you") is None
    assert turn_words("nl", "Dank u") is None


@pytest.mark.parametrize("code", LANGUAGES)
def test_every_table_is_whole(code: str) -> None:
    words = turn_words(code)
    assert words is not None
    assert words.answers
    assert words.fillers
    assert words.open_words | set(words.open_endings)
    assert {1, 2, 3} <= set(words.digits.values())
    assert {what for what, _ in words.asks} == set(Expectation) - {Expectation.NOTHING}
    every = [*words.open_words, *words.answers, *words.fillers, *words.digits]
    assert all(each == each.lower().strip() for each in every)


@given(st.sampled_from(LANGUAGES), st.text(), st.text())
def test_any_text_has_a_kind_or_no_words(code: str, text: str, asked: str) -> None:
    words = turn_words(code)
    assert words is not None
    kind = read_end(text, words, asked_for(asked, words))
    assert kind is None or isinstance(kind, TextEnd)
    if any(char.isascii() and char.isalpha() for char in text):
        assert kind is not None


@given(st.sampled_from(LANGUAGES), st.integers(1, 10**8))
def test_figures_are_digits_in_every_language(code: str, number: int) -> None:
    words = turn_words(code)
    assert words is not None
    asked = Asked(Expectation.DIGITS, 6)
    kind = read_end(str(number), words, asked)
    assert kind is (TextEnd.DIGITS_COMPLETE if number >= 100_000 else TextEnd.DIGITS)
