"""What both sides of a text that grows may rely on."""

from __future__ import annotations

import threading

import pytest

from qwen3tts_text.growing import LiveText


def push(live: LiveText, text: str, at: int = 0) -> bool:
    return live.push(text, range(at, at + len(text) + 1))


def taken(live: LiveText) -> str:
    return "".join(text for text, _ in live.take())


def test_what_is_pushed_is_taken_once_and_in_order() -> None:
    live = LiveText()
    assert live.take() == []
    assert push(live, "one ")
    assert push(live, "two", 4)
    assert live.take() == [("one ", (0, 1, 2, 3, 4)), ("two", (4, 5, 6, 7))]
    assert live.take() == []


def test_it_has_ended_only_when_all_is_taken() -> None:
    live = LiveText()
    push(live, "one")
    live.end()
    assert [live.ended, taken(live), live.ended] == [False, "one", True]
    assert not live.closed


def test_a_close_refuses_what_comes_later_and_keeps_what_came_before() -> None:
    live = LiveText()
    push(live, "one")
    assert live.close()
    assert not push(live, "two", 3)
    assert live.closed
    assert [live.ended, taken(live), live.ended] == [False, "one", True]


def test_a_text_that_was_ended_is_not_closed_by_its_reader() -> None:
    live = LiveText()
    live.end()
    assert not live.close()
    assert not live.closed
    with pytest.raises(ValueError, match="has been ended"):
        push(live, "more")


def test_the_end_after_a_close_says_nothing() -> None:
    calls: list[str] = []
    live = LiveText()
    live.on_change = lambda: calls.append("called")
    assert live.close()
    assert not live.close()
    live.end()
    assert not push(live, "one")
    assert calls == []


def test_the_reader_is_called_for_text_and_for_the_end_and_may_look_then() -> None:
    seen: list[tuple[str, bool]] = []
    live = LiveText()
    live.on_change = lambda: seen.append((taken(live), live.ended))
    push(live, "one")
    push(live, "", 3)
    live.end()
    live.end()
    assert seen == [("one", False), ("", True)]


@pytest.mark.parametrize("offsets", [(), (0,), (0, 1, 2, 3, 4)])
def test_offsets_must_fit(offsets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="offsets for a text of 3"):
        LiveText().push("one", offsets)


def test_nothing_is_lost_or_doubled_between_two_threads() -> None:
    """The reader closes while the writer writes: what was accepted is what is read."""
    for at in range(0, 200, 7):
        live = LiveText()
        accepted: list[str] = []
        read: list[str] = []
        come = threading.Event()
        live.on_change = come.set

        def write(live: LiveText = live, accepted: list[str] = accepted) -> None:
            for number in range(200):
                if not push(live, f"{number} "):
                    return
                accepted.append(f"{number} ")
            live.end()

        writer = threading.Thread(target=write)
        writer.start()
        while not live.ended:
            come.wait(5)
            come.clear()
            read += [text for text, _ in live.take()]
            if len(read) >= at:
                live.close()
        writer.join()
        assert read == accepted


def test_of_too_much_the_beginning_is_taken_up_to_a_blank() -> None:
    live = LiveText()
    push(live, "one two")
    assert live.take(6) == [("one ", (0, 1, 2, 3, 4))]
    push(live, " three", 7)
    assert live.take(6) == [("two", (4, 5, 6, 7)), (" ", (7, 8))]
    assert live.take(2) == [("th", (8, 9, 10))]


def test_how_much_is_taken_is_counted_in_bytes() -> None:
    live = LiveText()
    push(live, "\u00e9\u20ac\U0001f600\ud83d")
    assert live.take(4) == [("\u00e9", (0, 1))]
    assert live.take(7) == [("\u20ac\U0001f600", (1, 2, 3))]
    assert live.take(2) == []
    assert live.take(3) == [("\ud83d", (3, 4))]


def test_what_is_put_first_comes_first() -> None:
    live = LiveText()
    push(live, "two", 4)
    live.end()
    live.put_first("one ", range(5))
    assert not live.ended
    assert live.take() == [("one ", (0, 1, 2, 3, 4)), ("two", (4, 5, 6, 7))]
    assert live.ended
