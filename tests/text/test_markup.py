from __future__ import annotations

import re

import pytest

from qwen3tts_text import markup


@pytest.mark.parametrize(
    ("pattern", "beginning", "text"),
    [
        *(
            (markup.TAG, markup.OPEN_TAG, text)
            for text in (
                "<b>",
                "</b>",
                "</b >",
                "<br />",
                "<a-b:c.d/>",
                "<a href=http://x/y>",
                '<a href = "x > y" b=\'"\' c=d />',
                "<!-- a > b < c\n -->",
                "<!DOCTYPE html>",
                '<?xml version="1.0"?>',
            )
        ),
        *(
            (markup.AUTOLINK, markup.OPEN_TAG, text)
            for text in ("<https://a.b/c?d=e&f#g>", "<http://a>", "<a.b+c@d-e.f>", "<mailto:a@b>")
        ),
        *(
            (markup.LABEL, markup.OPEN_LABEL, text)
            for text in ("[]", "[a b]", "[![a](b) c [1]]", "[ x\n]")
        ),
        *(
            (markup.TARGET, markup.OPEN_TARGET, text)
            for text in ("()", "( a )", "(a_(b)_c)", '(a "b c")', "(a 'b' )", "((a)(b))")
        ),
        *(
            (markup.ENTITY, markup.OPEN_ENTITY, text)
            for text in ("&amp;", "&#65;", "&#xaF;", "&frac12;")
        ),
        *((markup.BOX, markup.OPEN_BOX, text) for text in ("[ ]", "[x]", "[X]")),
    ],
)
def test_every_beginning_of_markup_is_known_as_one(
    pattern: re.Pattern[str], beginning: re.Pattern[str], text: str
) -> None:
    assert pattern.fullmatch(text)
    for end in range(1, len(text)):
        assert beginning.fullmatch(text[:end]), text[:end]


@pytest.mark.parametrize(
    ("beginning", "text"),
    [
        (markup.OPEN_TAG, "<3"),
        (markup.OPEN_TAG, "< b"),
        (markup.OPEN_TAG, "<-"),
        (markup.OPEN_TAG, "<y and y"),
        (markup.OPEN_TAG, "<b <"),
        (markup.OPEN_LABEL, "[a [b [c"),
        (markup.OPEN_TARGET, "(see below"),
        (markup.OPEN_ENTITY, "&a "),
    ],
)
def test_what_cannot_become_markup_is_known_at_once(beginning: re.Pattern[str], text: str) -> None:
    assert not beginning.fullmatch(text)
