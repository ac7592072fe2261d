from __future__ import annotations

import pytest

from qwen3tts_agent.recognition.turns import joined
from qwen3tts_phone.detection.recogniser import Transcript


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        ([], ""),
        (["one", "two"], "one two"),
        ([" one ", "", "two"], "one two"),
        (["你好", "世界"], "你好世界"),
        (["สวัสดี", "ครับ"], "สวัสดีครับ"),
        (["감사", "합니다"], "감사 합니다"),
    ],
)
def test_pieces_are_joined_as_their_script_does(pieces: list[str], whole: str) -> None:
    assert joined([Transcript(piece) for piece in pieces]).text == whole


def test_the_language_is_that_of_most_of_it_and_the_confidence_that_of_the_worst() -> None:
    parts = [Transcript("oui", "fr", 0.9), Transcript("", "", 0.0), Transcript("a b c", "en", 0.4)]
    assert joined(parts) == Transcript("oui a b c", "en", 0.4)


def test_a_confidence_is_told_only_if_every_part_has_one() -> None:
    assert joined([Transcript("a", "en", 0.9), Transcript("b", "en")]).confidence is None
