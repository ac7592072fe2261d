"""One table of carriers: settings, command line and documents read it; one line adds a carrier."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from qwen3tts_phone.streams.carriers import (
    CARRIERS,
    Carrier,
    carrier_factory,
    carrier_kind,
    carrier_names,
    set_up_table,
)
from qwen3tts_phone.streams.carriers.adapter import Handshake
from qwen3tts_phone.streams.settings import StreamSettings

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "lines"
ACME = '''
"""A carrier of its own package: mu-law in JSON messages."""

from qwen3tts_codecs.g711 import PCMU
from qwen3tts_phone.streams.carriers.adapter import StreamKind
from qwen3tts_phone.streams.carriers.json_media import SOUND, JsonDialect, JsonMediaAdapter

ACME = JsonDialect(
    line="acme",
    payload=PCMU,
    media={"event": "media", "media": {"payload": SOUND}},
    clear={"event": "clear"},
    mark={"event": "mark"},
)


def acme() -> StreamKind:
    return StreamKind("acme", lambda handshake: JsonMediaAdapter(ACME))
'''
LINE = 'Carrier("acme_streams.acme:acme", "Acme Voice")'


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "acme_streams"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "acme.py").write_text(ACME, encoding="utf-8")
    return tmp_path


def test_a_new_carrier_is_one_file_and_one_line(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(package))
    with pytest.raises(ValueError, match="acme"):
        StreamSettings(kinds=("acme",))
    monkeypatch.setitem(CARRIERS, "acme", Carrier("acme_streams.acme:acme", "Acme Voice"))
    assert StreamSettings(kinds=("acme",)).kinds == ("acme",)
    kind = carrier_kind("acme")
    adapter = kind.make(Handshake(path="/acme"))
    assert list(adapter.audio(b"\xff")) == ['{"event":"media","media":{"payload":"/w=="}}']
    assert "| `acme` | Acme Voice | [acme.md](acme.md) |" in set_up_table()


def test_the_command_line_takes_a_new_carrier(package: Path) -> None:
    program = f"""
import sys
sys.path[:0] = {[str(package), *sys.path]}
from qwen3tts_phone.streams.carriers import CARRIERS, Carrier
CARRIERS["acme"] = {LINE}
from qwen3tts_cli.calls.lines import NAMES, LineOptions
assert "acme" in NAMES
option = LineOptions(line=["acme:8443"])
option.check()
assert (option.kinds, option.ports(None).web) == (("acme",), 8443)
from qwen3tts_cli.main import run
raise SystemExit(run(["answer", "--help"]))
"""
    environment = {"COLUMNS": "200", "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "acme" in done.stdout


def test_the_page_of_all_lines_has_the_table() -> None:
    assert (PAGES / "README.md").read_text("utf-8").endswith("\n\n" + set_up_table())


@pytest.mark.parametrize("name", list(CARRIERS))
def test_each_carrier_has_a_set_up_page_and_a_factory(name: str) -> None:
    carrier = CARRIERS[name]
    page = carrier.page or carrier.alias_of or name
    assert any((PAGES / f"{each}.md").exists() for each in (page, CARRIERS[page].page or page))
    assert carrier_factory(name).__name__ == name


def test_aliases_are_not_listed() -> None:
    assert "chan_websocket" not in carrier_names(aliases=False)
    assert set(carrier_names()) == set(CARRIERS)
