"""Whether what the agent is saying asks for an answer."""

from __future__ import annotations

import pytest

from qwen3tts_phone.detection.answers import expects_answer
from qwen3tts_speech.line import Saying


@pytest.mark.parametrize(
    ("heard", "remaining", "complete", "expected"),
    [
        ("Your parcel ", "has left. It will arrive tomorrow.", True, False),
        ("Your parcel ", "has left. Shall I", False, False),
        ("It left. Shall I ", "book it? I can also wait.", True, True),
        ("Shall I book it? I ", "can also wait. Or call.", True, True),  # asked a moment before
        ("Shall I book it? I can also wait ", "for you. Or call.", True, False),
        ("It left. It will ", "arrive tomorrow.", True, True),  # the last sentence
        ("It left. It ", "will arrive tomorrow, before noon.", True, False),
        ("It left. It will arrive tomorrow, ", "before noon.", True, True),
        ("It left. It will ", "arrive at 3.5", False, True),  # it is not known how it goes on
        ("Would you like Monday, ", "or rather Tuesday? There is time.", True, True),
        ("", "", True, True),
        ("您好。", "今天您想预约吗？我在这里。", True, True),  # noqa: RUF001
        ("您想预约吗？我们今天有很多", "时间。明天也有。", True, False),  # noqa: RUF001
        ("您想预约吗？我", "们今天有很多时间。明天也有。", True, True),  # noqa: RUF001
        ("您好。我们", "有很多时间。明天也有。", True, False),
    ],
)
def test_what_is_being_said(heard: str, remaining: str, complete: bool, expected: bool) -> None:
    assert expects_answer(Saying(heard, remaining, complete)) == expected


def test_in_doubt_it_is_an_answer() -> None:
    assert expects_answer(None)
