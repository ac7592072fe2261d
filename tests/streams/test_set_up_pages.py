"""The set-up pages of lines say what the code does, and lead to files that exist."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from textwrap import dedent, indent
from xml.etree import ElementTree

import pytest

from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.streams.carriers import CARRIERS, carrier_factory, carrier_kind
from qwen3tts_phone.streams.carriers.adapter import Handshake
from qwen3tts_phone.streams.carriers.asterisk import FORMATS
from qwen3tts_phone.streams.carriers.telnyx import TelnyxAudio
from tests.streams.carrier_fixtures import LINES

SET_UP_PAGES = Path(__file__).parents[2] / "docs" / "lines"


def page(line: str) -> str:
    return (SET_UP_PAGES / f"{line}.md").read_text(encoding="utf-8")


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
            known = set(inspect.signature(carrier_factory(line)).parameters)
            known |= {each.name for each in fields(TelnyxAudio) if "audio" in known}
            assert {str(each.arg) for each in node.keywords} <= known


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


ROOT = Path(__file__).parents[2]
PAGES = sorted(set((ROOT / "docs" / "lines").glob("*.md")) - {ROOT / "docs/lines/README.md"})
ASTERISK = ROOT / "configs" / "asterisk"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_leads_to_is_there(page: Path) -> None:
    text = page.read_text("utf-8")
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link
    assert "**Untested" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_the_findings_that_a_page_names_exist(page: Path) -> None:
    for table in re.findall(r"^\| it says \|.*\n((?:\|.*\n)+)", page.read_text("utf-8"), re.M):
        for row in table.splitlines():
            for code in re.findall(r"`([a-z]+_[a-z_]+)`", row.split("|")[1]):
                assert code in CODES, code


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_page_names_its_kind_of_line_as_it_is_called(page: Path) -> None:
    text = page.read_text("utf-8")
    named = re.findall(r'kinds=\("(\w+)",\)', text) + re.findall(r"--line (\w+)", text)
    assert named
    assert set(named) <= set(CARRIERS)


def test_all_formats_of_asterisk_are_on_its_page() -> None:
    text = (ROOT / "docs" / "lines" / "chan_websocket.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in FORMATS)


def test_pages_and_files_have_the_same_ports_and_paths() -> None:
    page = (ROOT / "docs" / "lines" / "audiosocket.md").read_text("utf-8")
    assert "port=9019" in page
    assert "192.0.2.2:9019" in (ASTERISK / "audiosocket.conf").read_text("utf-8")
    page = (ROOT / "docs" / "lines" / "chan_websocket.md").read_text("utf-8")
    client = (ASTERISK / "websocket_client.conf").read_text("utf-8")
    assert "port=8090" in page
    assert "uri = ws://192.0.2.2:8090/asterisk\n" in client
    assert "connection_type = per_call_config\n" in client
    assert "protocols = media\n" in client


def dialplan(name: str) -> dict[str, list[str]]:
    """The applications of each extension of a file, in order."""
    found: dict[str, list[str]] = {}
    number = ""
    for line in (ASTERISK / name).read_text("utf-8").splitlines():
        first = re.fullmatch(r"exten => (\w+),1,(.*)", line)
        further = re.fullmatch(r" same => n,(.*)", line)
        if first is not None:
            number = first[1]
            found[number] = [first[2]]
        elif further is not None:
            found[number].append(further[1])
    return found


def test_no_call_is_answered_before_a_websocket_that_asterisk_waits_for() -> None:
    """Asterisk 22 ends a call in 20 ms where Answer() stands before such a Dial()."""
    waiting = [
        steps
        for steps in dialplan("chan_websocket.conf").values()
        if any("WebSocket/INCOMING" in step for step in steps)
    ]
    assert waiting == [["Dial(WebSocket/INCOMING/c(slin24)f(json))", "Hangup()"]]


def test_the_pages_say_what_was_run_against_a_real_asterisk() -> None:
    for name in ("audiosocket", "chan_websocket"):
        page = (ROOT / "docs" / "lines" / f"{name}.md").read_text("utf-8")
        assert "Run against Asterisk 22" in page
        assert "Untested:** Asterisk itself" not in page
