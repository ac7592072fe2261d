"""How written text becomes text that can be said."""

# Look-alike characters are meant.
# ruff: noqa: RUF001

from __future__ import annotations

import pytest

from qwen3tts_text.segmenter import Segmenter, SegmenterSettings

ONE_PIECE = SegmenterSettings((10**6,), (10**6,), (10**6,), 10**6)


def spoken(text: str, *, flush_at: int | None = None, speak_code: bool = False) -> str:
    chosen = SegmenterSettings((10**6,), (10**6,), (10**6,), 10**6, speak_code)
    segmenter = Segmenter(chosen)
    pieces = segmenter.push(text[:flush_at])
    if flush_at is not None:
        pieces += segmenter.flush() + segmenter.push(text[flush_at:])
    return " / ".join(piece.text for piece in pieces + segmenter.end() if piece.text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # emphasis
        ("**bold** and *it* and __b__ and _i_ and ~~gone~~", "bold and it and b and i and gone"),
        ("***both***!", "both!"),
        ("un*frigging*believable", "unfriggingbelievable"),
        ("**5** of *7* left", "5 of 7 left"),
        ("snake_case and __init__", "snake_case and init"),
        ("3 * 4 = 12 and 3*4", "3 × 4 = 12 and 3×4"),
        ("a * b", "a * b"),
        ("2**3", "2 3"),
        ("~5 km", "~5 km"),
        (r"\*not\* it, C:\dir", "*not* it, C:\\dir"),
        (r"\*- it", "*- it"),
        (r"\@# 1", "@# 1"),
        ("- :) Fine.\n- :-( Bad.", "Fine. Bad."),
        # headings, rules, quotations
        ("# Title\ntext", "Title, text"),
        ("###### Title\n\nMore.", "Title, More."),
        ("#5 and C# #tag", "#5 and C# #tag"),
        ("Title\n=====\ntext", "Title, text"),
        ("One.\n\n---\n\nTwo.", "One. Two."),
        ("One.\n***\nTwo.", "One. Two."),
        ("> quoted\n> text", "quoted text"),
        ("=> 5 > 3", "=> 5 > 3"),
        # lines
        ("one\r\ntwo", "one two"),
        ("one\r\n\r\ntwo", "one, two"),
        ("one\nTwo", "one, Two"),
        ("a line that is as full as a line can be, so that it was broken for the\nHouse", None),
        ("hard\\\nbreak", "hard break"),
        # lists
        ("- milk\n- eggs\n* bread\n+ tea", "milk, eggs, bread, tea"),
        ("• one\n• two", "one, two"),
        ("1. First\n2. Second", "1. First, 2. Second"),
        ("- [ ] open\n- [x] done", "open, done"),
        ("-5 degrees", "-5 degrees"),
        ("- **Name**: Ann", "Name: Ann"),
        # links, images, notes
        ("see [the page](https://x.y/a_(b)) now", "see the page now"),
        ('see [it](<https://x.y> "a title").', "see it."),
        ("![a cat](cat.png)", "a cat"),
        ("[ref][1] and [alone]", "ref and alone"),
        ("text[^1] and word[12], at [3].", "text and word, at 3."),
        ("[^1]: A note.", "A note."),
        ("see x[12 y] or z[^n\nNext]", "see x 12 y or z^n, Next]"),
        ("[note](see below)", "note (see below)"),
        ("f(x) is [a, b) or (c]", "f(x) is a, b) or (c"),
        ("array[i](x", "array i"),
        ("wow![!", "wow!"),
        ("wow! [x]", "wow! x"),
        # code
        ("use `a*b` and ``c`` now", "use a*b and c now"),
        ("Code:\n```python\nprint(1)\n```\nDone.", "Code: Done."),
        ("~~~\nx\n~~~\nDone.", "Done."),
        ("```\nnever closed", ""),
        ("```one line``` ok", "one line ok"),
        ("````\n```\n````\nok", "ok"),
        ("See: ```py\nx = 1\n```\nafter", "See: after"),
        ('```js title="a b"\nx\n```\nDone.', "Done."),
        ("```\na ``` b\n```\nDone.", "Done."),
        ("1. do\n   ```\n   x\n   ```\n2. on", "1. do, 2. on"),
        # tables
        ("| a | b |\n|---|:-:|\n| 1 | -2 |\n\nok", "a, b, 1, -2, ok"),
        ("a | b", "a | b"),
        ("| - | x |", "x"),
        # marks of a line after others
        ("😀 - milk", "milk"),
        ("<b># Title</b>\ntext", "Title, text"),
        # HTML
        ("<b>bold</b> <i class='x'>it</i>", "bold it"),
        ("one<br/>two<p>three</p>", "one, two, three"),
        ("H<sub>2</sub>O", "H2O"),
        ("a <!-- not > said --> b", "a b"),
        ("<https://x.y/z> or <a@b.c>", "https://x.y/z or a@b.c"),
        ("1 < 2 > 0, a <b and c> d, I <3 it", "1 < 2 > 0, a <b and c> d, I <3 it"),
        ('<a href="x>y" id=z>text</a>', "text"),
        ("A &amp; B &lt;3 &nbsp;C &#65; &bogus; R&D", "A & B <3 C A &bogus; R&D"),
        ("cats <and/or> dogs", "cats <and/or> dogs"),
        ("<?xml version='1.0'?><!DOCTYPE x>ok", "ok"),
        # symbols
        ("Hi \U0001f44b\U0001f3fd there!\U0001f600", "Hi there!"),
        ("so\U0001f600good", "so good"),
        ("Great :) or not ;-( hm :P.", "Great or not hm."),
        ("Great :-)", "Great"),
        ("at 10:30 :30 :- : a :) b :(c", "at 10:30 :30 :- : a b :(c"),
        ("Great \u2764\ufe0f.", "Great."),
        ("1\ufe0f\u20e3 one \u2705 done \u2192 next", "1 one done next"),
        ("\U0001d5db\U0001d5f2\U0001d5f9\U0001d5f9\U0001d5fc", "Hello"),
        ("20 °C, © 2024, 5 €, ½", "20 °C, © 2024, 5 €, ½"),
        ("No!!!!!!!! Why??????", "No!!! Why???"),
        ("你\u200b好 \u3000吗", "你好 吗"),
        ("...and then", "and then"),
        (".5 of it", ".5 of it"),
        ("¿Qué? ¡Sí!", "¿Qué? ¡Sí!"),
    ],
)
def test_markup_is_not_said(text: str, wanted: str | None) -> None:
    assert spoken(text) == (text.replace("\n", " ") if wanted is None else wanted)


def test_code_may_be_spoken() -> None:
    assert spoken("```py\nx = 1\ny = 2\n```\nok", speak_code=True) == "x = 1, y = 2, ok"


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ("a **", "b** c", "a / b c"),
        ("see [it](http", "s://x.y) now", "see it / now"),
        ("see [it](a(b", "c) d) now", "see it / d) now"),
        ("see [it]", "(x) now", "see it / now"),
        ("see [", "it](x) now", "see / it now"),
        ("x <b", ">y", "x <b / >y"),
        ("x &am", "p; y", "x &am / p; y"),
        ("x!", "[y]", "x! / y"),
        ("a\\", "*b", "a\\ / b"),
        ("a :", ") b", "a : / b"),
        ("a :)", " b", "a / b"),
        ("a[^1", "] b", "a^1 / b"),
        ("```py", "thon\nx\n```\nok", "ok"),
        ("```\nx", "\n```\nok", "ok"),
        ("|", "a|b|", "a, b"),
        ("- ", "item", "item"),
        ("a\ud83d", "\ude00b", "a / b"),
        ("[x]", " y", "y"),
    ],
)
def test_a_flush_within_markup_says_what_it_can(before: str, after: str, wanted: str) -> None:
    assert spoken(before + after, flush_at=len(before)) == wanted


def test_what_only_began_like_a_tag_is_said() -> None:
    assert spoken("x <" + "a" * 300) == "x <" + "a" * 300
    assert spoken('x <a b="' + "c" * 300) == 'x <a b="' + "c" * 300
    assert spoken("[a](" + "b" * 3000) == "a (" + "b" * 3000
    assert spoken("```" + "b" * 100) == "b" * 100
