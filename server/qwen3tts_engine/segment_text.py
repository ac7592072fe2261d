"""The spoken characters of a segment as text: its ends trimmed, its line ends made commas."""

from __future__ import annotations

from collections.abc import Sequence

from qwen3tts_engine.segment_chars import PAUSES, STRAY_AT_START

Spelled = tuple[str, tuple[int, ...]]
"""A text, and the position in the original of each of its code points and one past the last."""


def after_strays(chars: Sequence[str], first: int, last: int) -> int:
    """The first of ``chars[first:last]`` that is not left out where a text begins, whatever follows
    ``last``: the text begins there, or it is a dot that may still belong to a number."""
    while first < last and (
        chars[first] in " \n"
        or (_is_stray(chars, first, last) and (chars[first] != "." or first + 1 < last))
    ):
        first += 1
    return first


def spell(
    chars: Sequence[str], starts: Sequence[int], ends: Sequence[int], first: int, last: int
) -> Spelled:
    """``chars[first:last]`` as text; a line's end within becomes a comma where no mark stands.

    What it gives for one part followed by what it gives for the next is what it gives for both.
    Each part ends with a character that is no white space; ``chars[0]`` is none either.
    """
    text: list[str] = []
    offsets: list[int] = []
    for index in range(first, last):
        char = chars[index]
        if char == "\n":
            if chars[index - 1] not in PAUSES:
                text.append(",")
                offsets.append(starts[index])
            char = " "
        text.append(char)
        offsets.append(starts[index])
    return "".join(text), (*offsets, ends[last - 1])


def spoken(chars: Sequence[str], starts: Sequence[int], ends: Sequence[int]) -> Spelled | None:
    """The text of a whole segment; None where there is nothing to say."""
    first, last = 0, len(chars)
    while first < last and (chars[first] in " \n" or _is_stray(chars, first, last)):
        first += 1
    if not says(chars, first, last):
        return None
    return spell(chars, starts, ends, first, last)


def says(chars: Sequence[str], first: int, last: int) -> bool:
    """Whether ``chars[first:last]`` holds a letter or digit."""
    return any(chars[index].isalnum() for index in range(first, last))


def trimmed(text: str, offsets: tuple[int, ...]) -> Spelled | None:
    """What is left of a text that was begun elsewhere, as a text of its own; None if nothing."""
    first, last = 0, len(text)
    while first < last and (text[first] == " " or _is_stray(text, first, last)):
        first += 1
    return (text[first:], offsets[first:]) if says(text, first, last) else None


def _is_stray(chars: Sequence[str], index: int, last: int) -> bool:
    """Whether a mark at the beginning says nothing."""
    if chars[index] == "." and index + 1 < last and chars[index + 1].isdigit():
        return False
    return chars[index] in STRAY_AT_START
