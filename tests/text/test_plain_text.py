from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_text.markup import HOLD
from qwen3tts_text.plain_text import PlainText


def plain(*pieces: str) -> str:
    reader = PlainText()
    return "".join(map(reader.push, pieces)) + reader.finish()


@pytest.mark.parametrize(
    ("marked", "said"),
    [
        ("It is **very** warm and *nice*.", "It is very warm and nice."),
        ("***Both** at* once, **a *b* c**.", "Both at once, a b c."),
        ('**"No"**, (*he*) said.', '"No", (he) said.'),
        ("**Note:** _em_ and __init__", "Note: em and init"),
        ("**F**or **Y**ou", "For You"),
        ("** loose ** ends", "loose  ends"),
        ("~~gone~~ here", "gone here"),
        ("这是**重点**内容。", "这是重点内容。"),
        ("**굵게**입니다", "굵게입니다"),
        ("مرحبا **بالعالم**", "مرحبا بالعالم"),
        ("# Title\nText", "Title\nText"),
        ("### Deep", "Deep"),
        ("- milk\n* eggs\n  + tea\n• rice", "milk\neggs\ntea\nrice"),
        ("- [ ] open\n- [x] done\n- [1] cited", "open\ndone\n[1] cited"),
        ("1. one\n2. two", "1. one\n2. two"),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("Above\n---\nbelow\n* * *\nend", "Above\nbelow\nend"),
        ("| a |\n|---|:-:|\n| 1 |", "| a |\n| 1 |"),
        ("```py\nx = a * b_c\n```\nDone", "x = a * b_c\n\nDone"),
        ("```\ncode without an end", "code without an end"),
        ("```\na ``` b\n```\nDone.", "a  b\n\nDone."),
        ("1. do\n   ```\n   x\n   ```\n2. on", "1. do\n\n   x\n\n2. on"),
        ("```inline``` here", "inline here"),
        ("Use `foo_bar(*args)` or ``a`b``.", "Use foo_bar(*args) or ab."),
        ("A `tick alone\nand **bold**", "A tick alone\nand bold"),
        ("[here](http://a.b/c_(d)) it is", "here it is"),
        ('[**bold**](u "its title") link', "bold link"),
        ("![a picture](x.png) and [![alt](i.png)](http://x)", "a picture and alt"),
        ("As known.[^1]", "As known."),
        ("<b>bold</b> and<br/>line, <break time='1s'/>then", "bold and\nline, \nthen"),
        ("<p>One</p><p>Two</p>", "One\n\nTwo\n"),
        ('<a href="http://x/y">there</a><!-- not this -->', "there"),
        ("<https://a.b/c_d> <joe@x.com> <mailto:a@b.c>", "https://a.b/c_d joe@x.com a@b.c"),
        ("AT&amp;T &lt;b&gt; caf&eacute;&nbsp;&#33;", "AT&T <b> café !"),
        ("\\*not\\* \\# so", "*not* # so"),
        ("one\\\ntwo", "one\ntwo"),
    ],
)
def test_markup_goes_and_its_words_stay(marked: str, said: str) -> None:
    assert plain(marked) == said


@pytest.mark.parametrize(
    "text",
    [
        "3 * 4 is 2*3*2 and a*b",
        "snake_case, file_ and a_b_c",
        "I <3 you, a < b, x <y and y> z, <- and ->",
        "See [1] and [a][b], [sic] (there)",
        "f***, an A*, a note*",
        "press *67 or * or # or *#06#",
        "R&D, AT&T &foo; & so on",
        "C:\\new and \\o/",
        "~5 or 5~6",
        "-5 degrees, +49 123, 5 - 3 = 2 -- and so - on",
        "#1 and C# and ####### 7",
        "https://a.b/_next/c_d_e?x=*y*&z=~/[1] it is",
        "www.a.b/_x_ too",
        "/usr/_private/x.py and ^_^",
        "Wow![1] No! Really!?",
        "你好。你_好_吗",
        "नमस्ते दुनिया, שלום עולם, สวัสดี 😀👍🏽",
        "He said \u201cno\u201d \u2014 twice.",
        "a == b != c",
        "one\ntwo\n\nthree",
        "Call +1 (800) 555-1212, ext. #4.",
    ],
)
def test_what_only_looks_like_markup_stays(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", "\n\n", "*", "**", "***", "_", "__", "`", "```", "``````", "~~", "#", "# "),
        *("---", "* * *", "===", "- ", ">", "> - ", "<b></b>", "<br/>", "[]()", "![](x)", "&nbsp;"),
        *("- [ ]", "```py\n```", "<!-- x -->", "\\", "|---|---|"),
    ],
)
def test_markup_alone_is_nothing_to_say(text: str) -> None:
    assert plain(text) == ""


def test_an_emphasis_that_is_not_closed_ends_with_its_paragraph() -> None:
    assert plain("*open\n\n2*3*4") == "open\n\n2*3*4"


def test_a_link_without_an_end_loses_its_address_only() -> None:
    assert plain("[here](http://a.b/" + "x" * 300 + ") and on") == "here and on"


def test_what_follows_an_address_that_never_ends_is_said() -> None:
    assert plain("[here](http://a.b/" + "x" * 300 + " and on") == "here and on"


def test_an_unfinished_tag_or_link_at_the_end_is_said() -> None:
    assert plain("so <b class") == "so <b class"
    assert plain("so [he") == "so [he"
    assert plain("so [he](htt") == "so [he](htt"


# --- while it grows


def test_words_come_out_as_soon_as_they_are_known() -> None:
    reader = PlainText()
    pieces = ["It is **ve", "ry** warm. ", "[He", "re](http://a", ".b) it <", "3 is", " <b", ">so!"]
    assert [reader.push(piece) for piece in pieces] == [
        "It is ve",
        "ry warm. ",
        "",
        "",
        "Here it ",
        "<3 is",
        " ",
        "so",
    ]
    assert reader.finish() == "!"


@pytest.mark.parametrize("begin", ["<a title='", "[", "<!-- ", "<https://a.b/"])
def test_what_is_not_closed_is_let_go(begin: str) -> None:
    reader = PlainText()
    assert reader.push(begin + "x" * (HOLD - len(begin) - 1)) == ""
    assert reader.push("x") != ""


PAIRS = ("**", "__", "```", "~~", "\n\n", "](", "![", "- ", "<b>", "</b>", "<br>", "<a h='", "<!--")
OTHERS = (
    "-->",
    "http://",
    "www.",
    "[x]",
    "&amp;",
    "a_b",
    "Hi",
    *"*_`~<>[]()!#&;\\\"'=|-+:/. \n\tax3。你😀",
)
MARKED = st.lists(st.sampled_from(PAIRS + OTHERS), max_size=60).map("".join)


@given(MARKED, st.lists(st.integers(1, 12), min_size=1))
def test_how_a_text_is_cut_makes_no_difference(text: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes * len(text):
        pieces.append(text[at : at + size])
        at += size
    assert plain(*pieces) == plain(text)


@given(MARKED)
def test_little_is_held_back(text: str) -> None:
    reader = PlainText()
    given_out = sum(len(reader.push(char)) for char in text)
    assert len(reader.finish()) <= 2 * HOLD
    assert given_out <= len(text)


@given(
    st.text(st.characters(categories=["L", "N", "Zs"]) | st.sampled_from(".,;?'\"%$€"), min_size=1)
)
def test_a_text_without_markup_is_said_as_it_is(text: str) -> None:
    assert plain(text) == text.lstrip()


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert plain(*text) == plain(text)


@pytest.mark.parametrize(
    "unit", ["[", "<a ", "*", "_a", "![", "[a](", "&a", "`", "\\", "\n- [", "a"]
)
def test_a_hundred_thousand_marks_are_read_in_their_time(unit: str) -> None:
    text = unit * (100_000 // len(unit))
    assert plain(*(text[at : at + 500] for at in range(0, len(text), 500))) == plain(text)
