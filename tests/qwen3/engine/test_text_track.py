from __future__ import annotations

import pytest

from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.qwen3.engine.text_track import LAST_WORD, TextTrack
from qwen3tts_text.growing import LiveText
from tests.qwen3.engine.worker_world import Letters


def track(text: str, more: LiveText | None = None, **fields: object) -> TextTrack:
    return TextTrack(SynthesisRequest(text, more=more, **fields), Letters())  # type: ignore[arg-type]


def letters(made: TextTrack) -> str:
    return "".join(map(chr, made.ids))


def test_a_text_that_does_not_grow_is_all_there() -> None:
    made = track("hello")
    assert letters(made) == "hello"
    assert made.ends == [1, 2, 3, 4, 5]
    assert made.ended
    assert not made.live
    assert not made.streaming
    assert not made.pull()


def test_text_that_has_ended_early_is_still_text_that_grew() -> None:
    more = LiveText()
    more.push("lo", (3, 4, 5))
    more.end()
    made = track("hel", more)
    assert letters(made) == "hello"
    assert made.ended
    assert made.streaming


def test_tokens_are_given_as_soon_as_they_are_certain() -> None:
    more = LiveText()
    made = track("hel", more)
    assert letters(made) == "he"
    more.push("lo", (3, 4, 5))
    assert made.pull()
    assert letters(made) == "hell"
    assert not made.pull()
    more.end()
    assert made.pull()
    assert letters(made) == "hello"


def test_what_is_blank_before_the_first_word_is_left_out() -> None:
    more = LiveText()
    made = track("  ", more)
    more.push(" hi", (2, 3, 4, 5))
    more.end()
    made.pull()
    assert made.text == "hi"
    assert made.original(0, 2) == (3, 5)


def test_a_place_in_the_text_is_a_place_in_the_original() -> None:
    more = LiveText()
    made = track("ab", more, offsets=(2, 3, 6))
    more.push(" c", (8, 9, 10))
    more.end()
    made.pull()
    assert made.original(0, 2) == (2, 4)
    assert made.original(3, 4) == (9, 10)
    assert made.original(1, 1) == (3, 3)


@pytest.mark.parametrize(
    ("text", "said"), [("...", False), (" ?! ", False), ("a", True), ("5", True), ("€", True)]
)
def test_there_is_something_to_say_or_not(text: str, said: bool) -> None:
    assert track(text).speakable is said


def test_text_that_is_refused_later_differs_from_text_that_ended() -> None:
    more = LiveText()
    made = track("ab", more)
    made.time_out()
    assert (made.timed_out, made.ended, letters(made)) == (True, True, "ab")
    assert not more.push("c", (2, 3))

    ended = LiveText()
    ended.push("c", (2, 3))
    made = track("ab", ended)
    ended.end()
    made.time_out()
    assert (made.timed_out, letters(made)) == (False, "abc")
    made.time_out()
    made.close()


def test_text_without_room_is_refused() -> None:
    more = LiveText()
    made = TextTrack(SynthesisRequest("ab", more=more), Letters(), most=20)
    for start in range(2, 32, 3):
        more.push(" cd", range(start, start + 4))
    assert made.pull()
    assert made.text == "ab" + " cd" * 6
    assert (made.timed_out, made.ended, letters(made)) == (False, True, made.text)
    assert not more.push("x", (0, 1))
    assert "".join(text for text, _ in more.take()) == " cd" * 4


def test_one_long_delta_is_taken_as_far_as_there_is_room() -> None:
    more = LiveText()
    made = TextTrack(SynthesisRequest("ab", more=more), Letters(), most=20)
    more.push(" one two three four", range(2, 22))
    more.end()
    made.pull()
    assert made.ended
    # Less room than a word needs counts as no room: no word is split.
    assert made.text == "ab one two three "
    (left,) = more.take()
    assert made.text + left[0] == "ab one two three four"
    assert left[1] == tuple(range(len(made.text), 22))
    assert made.original(0, len(made.text)) == (0, len(made.text))


@pytest.mark.parametrize("more_text", ["", " and five six"])
def test_text_that_was_there_early_is_taken_as_far_as_there_is_room(more_text: str) -> None:
    early = "ab one two three four"
    more = LiveText()
    more.push(more_text, range(len(early), len(early) + len(more_text) + 1))
    more.end()
    made = TextTrack(SynthesisRequest(early, more=more), Letters(), most=20)
    assert made.ended
    assert made.text == "ab one two three "
    left = more.take()
    assert made.text + "".join(text for text, _ in left) == early + more_text
    assert [at for _, offsets in left for at in offsets[:-1]] == list(
        range(len(made.text), len(early + more_text))
    )


def test_letters_of_many_tokens_stay_within_the_room() -> None:
    class Bytes(Letters):
        """A token for each byte, as of a script that the vocabulary does not know."""

        def push(self, text: str) -> list[tuple[int, int]]:
            found = super().push(text)
            return [pair for pair in found for _ in chr(pair[0]).encode()]

        def end(self) -> list[tuple[int, int]]:
            return [pair for pair in super().end() for _ in chr(pair[0]).encode()]

    text = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 " * 10
    more = LiveText()
    more.end()
    made = TextTrack(SynthesisRequest(text, more=more), Bytes(), most=100)
    assert 100 - LAST_WORD < len(made.ids) <= 100
    assert made.text + "".join(part for part, _ in more.take()) == text


def test_who_leaves_is_not_called_any_more() -> None:
    more = LiveText()
    more.on_change = pytest.fail
    made = track("ab", more)
    made.close()
    assert more.closed
    assert more.on_change is None
