"""The set-up pages say what the code does."""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from textwrap import dedent, indent
from xml.etree import ElementTree

import pytest

from qwen3tts_phone.streams.adapter import Handshake
from qwen3tts_phone.streams.carriers import carrier_factory, carrier_kind
from tests.streams.carrier_fixtures import LINES

PAGES = Path(__file__).parents[2] / "docs" / "lines"


def page(line: str) -> str:
    return (PAGES / f"{line}.md").read_text(encoding="utf-8")


def blocks(line: str, language: str) -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", page(line), re.MULTILINE | re.DOTALL)
    return [dedent(each) for each in found]


@pytest.mark.parametrize("line", LINES)
def test_the_program_on_the_page_is_python_with_names_that_there_are(line: str) -> None:
    (program,) = blocks(line, "python")
    tree = ast.parse("async def main():\n" + indent(program, "    "))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = __import__(str(node.module), fromlist=["x"])
            assert all(hasattr(module, alias.name) for alias in node.names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == line:
            known = inspect.signature(carrier_factory(line)).parameters
            assert {str(each.arg) for each in node.keywords} <= set(known)


@pytest.mark.parametrize("line", LINES)
def test_each_variable_on_the_page_is_read_and_each_that_is_read_stands_there(line: str) -> None:
    factory = carrier_factory(line)
    read = set(re.findall(r'"([A-Z]+_[A-Z_]+)"', inspect.getsource(factory)))
    assert read <= set(re.findall(r"[A-Z]+_[A-Z_]+", page(line)))
    exported = " ".join(re.findall(r"^ *export (.*)$", page(line), re.MULTILINE))
    named = set(re.findall(r"([A-Z]+_[A-Z0-9_]+)=", exported))
    assert named <= read | {"MR_QWEN3TTS_PUBLIC_URL"}


@pytest.mark.parametrize("line", LINES)
def test_the_answer_on_the_page_is_the_one_that_is_given(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = carrier_kind(line)
    assert kind.answer is not None
    query = "From=%2B15550100&uuid=u&to=15550199" if line != "plivo" else "From=15550100"
    handshake = Handshake(
        path=f"/{line}/answer", query=query, headers={"host": "voice.example.com"}
    )
    content_type, given = kind.answer(handshake)
    shown = [*blocks(line, "xml"), *blocks(line, "json")]
    if line == "exotel":
        assert json.loads(given)["url"] == "wss://voice.example.com/exotel"
    elif content_type == "application/xml":
        ours, theirs = (
            ElementTree.fromstring(given.partition("\n")[2]),
            ElementTree.fromstring(shown[0]),
        )
        assert [each.tag for each in theirs.iter()][:2] == [each.tag for each in ours.iter()][:2]
        (stream,), (printed,) = ours.iter("Stream"), theirs.iter("Stream")
        assert printed.attrib == stream.attrib
        assert (printed.text or "").strip() == (stream.text or "").strip()
    else:
        ours, theirs = json.loads(given), json.loads(shown[0])
        assert [sorted(_keys(each)) for each in theirs] == [
            sorted(_keys(each) | ({"wsAuth"} if line == "jambonz" and "url" in each else set()))
            for each in ours
        ]


def _keys(of: dict[str, object]) -> set[str]:
    return set(of)


@pytest.mark.parametrize("line", LINES)
def test_the_page_says_what_has_not_been_tried(line: str) -> None:
    assert re.search(r"\*\*Untested against \w+\.\*\*", page(line))
