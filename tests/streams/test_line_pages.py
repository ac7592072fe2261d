"""The set-up pages of lines, and the files that they lead to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.streams.carriers import CARRIERS
from qwen3tts_phone.streams.carriers.asterisk import FORMATS

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
