"""The admin page: what it shows, to whom, and that it shows everything as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request

from mr_qwen3tts import page as page_module
from mr_qwen3tts.page import make_router, state_of
from mr_qwen3tts.records import Records
from mr_qwen3tts.settings import Settings
from mr_qwen3tts.voices.book import VoiceRequest
from qwen3tts_speech.latency import Mark, UtteranceRecord
from qwen3tts_wire.errors import ConnectionLost

PLUGIN = Path(page_module.__file__).parent
EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'

Ask = Callable[..., Any]


def wish(name: str | None, *samples: str) -> VoiceRequest:
    return VoiceRequest(name=name, samples=samples, ref_text=None)


def a_plugin(**more: Any) -> Any:
    """A plugin that has nothing to show yet."""
    state = SimpleNamespace(
        url="wss://anna:hidden@tts.example:8765/v1/speech?key=hidden",
        up=True,
        since=1_800_000_000.0,
        last_error=None,
        engine="qwen3",
        model="0.6B",
        voices=["ryan"],
        using_fallback=False,
        attempts=1,
    )
    parts = {
        "link": SimpleNamespace(state=state),
        "records": Records(unix_s=lambda: 1_800_000_060.0),
        "voices": SimpleNamespace(known=(), problems={}),
        "conversations": {},
        "settings_of": lambda context: Settings(api_key="hidden"),
    }
    return SimpleNamespace(**{**parts, **more})


def only_admins(request: Request) -> None:
    if request.headers.get("role") != "admin":
        raise HTTPException(status_code=403)


@pytest.fixture
def ask() -> Ask:
    async def ask(plugin: Any, path: str, role: str = "admin") -> httpx.Response:
        app = FastAPI()
        app.include_router(make_router(plugin, Depends(only_admins)))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
            return await client.get(path, headers={"role": role})

    return ask


# --- who may see it


@pytest.mark.parametrize("path", ["/mr_qwen3tts", "/mr_qwen3tts/state"])
async def test_only_an_administrator_sees_the_page_and_its_state(ask: Ask, path: str) -> None:
    assert (await ask(a_plugin(), path)).status_code == 200
    refused = await ask(a_plugin(), path, role="user")
    assert refused.status_code == 403
    assert "tts.example" not in refused.text


@pytest.mark.parametrize("name", ["page.css", "page.js"])
async def test_the_files_beside_the_page_tell_nothing_and_are_open(ask: Ask, name: str) -> None:
    answer = await ask(a_plugin(), f"/mr_qwen3tts/static/{name}", role="nobody")
    assert answer.status_code == 200
    assert answer.content == (PLUGIN / "static" / name).read_bytes()


@pytest.mark.parametrize("name", ["page.py", "..%2Fpage.py", "%2e%2e/records.py", "x.js"])
async def test_no_other_file_is_given_out(ask: Ask, name: str) -> None:
    assert (await ask(a_plugin(), f"/mr_qwen3tts/static/{name}")).status_code == 404


async def test_answers_are_not_kept_by_anybody(ask: Ask) -> None:
    for path in ("/mr_qwen3tts", "/mr_qwen3tts/state"):
        assert (await ask(a_plugin(), path)).headers["cache-control"] == "no-store"


# --- what it shows


async def test_the_state_tells_of_the_connection_without_secrets(ask: Ask) -> None:
    answer = await ask(a_plugin(), "/mr_qwen3tts/state")
    assert "hidden" not in answer.text
    assert answer.json()["connection"] == {
        "url": "wss://tts.example:8765/v1/speech",
        "up": True,
        "since_unix_s": 1_800_000_000.0,
        "engine": "qwen3",
        "model": "0.6B",
        "using_fallback": False,
        "attempts": 1,
        "error": "",
        "remedy": "",
    }


def test_a_lost_connection_is_shown_with_its_remedy() -> None:
    plugin = a_plugin()
    plugin.link.state.up = False
    plugin.link.state.last_error = ConnectionLost("It is away.", remedy="Start it.")
    connection = state_of(plugin)["connection"]
    assert (connection["up"], connection["error"], connection["remedy"]) == (
        False,
        "It is away.",
        "Start it.",
    )


def test_an_error_that_is_a_plain_string_is_shown() -> None:
    plugin = a_plugin()
    plugin.link.state.last_error = "It is away."
    assert state_of(plugin)["connection"]["error"] == "It is away."


def test_voices_are_shown_by_name_or_by_the_file_of_their_sample() -> None:
    known = (wish("ryan"), wish(None, "/srv/anna/anna.wav"), wish("http://u:hidden@h/v.wav?s=1"))
    book = SimpleNamespace(known=known, problems={wish("vera"): "No voice is called 'vera'."})
    voices = state_of(a_plugin(voices=book))["voices"]
    assert voices["known"] == ["ryan", "anna.wav", "http://h/v.wav"]
    assert voices["offered"] == ["ryan"]
    assert voices["problems"] == [{"voice": "vera", "problem": "No voice is called 'vera'."}]


def test_hundreds_of_voices_are_counted_and_not_all_listed() -> None:
    plugin = a_plugin()
    plugin.link.state.voices = [{"name": f"voice {number}"} for number in range(300)]
    voices = state_of(plugin)["voices"]
    assert (len(voices["offered"]), voices["offered_n"]) == (100, 300)
    assert voices["offered"][0] == "voice 0"


def test_our_own_telephone_is_shown_where_there_is_one() -> None:
    assert state_of(a_plugin())["telephone"] is None
    call = {"log_id": "call-1", "direction": "inbound", "remote": EVIL, "seconds": 20}
    snapshot = {"uri": "sip:127.0.0.1:5070", "trouble": None, "calls": [call]}
    shown = state_of(a_plugin(desk=SimpleNamespace(snapshot=lambda: snapshot)))["telephone"]
    assert (shown["uri"], shown["trouble"], shown["n"]) == ("sip:127.0.0.1:5070", "", 1)
    assert shown["calls"][0]["seconds"] == 20


def test_conversations_that_speak_come_first() -> None:
    conversations = {
        "silent": SimpleNamespace(speaking=False, unplayed_s=0.0),
        "speaking": SimpleNamespace(speaking=True, unplayed_s=0.25),
    }
    plugin = a_plugin(conversations=conversations)
    plugin.records.utterance("speaking", "Reception", UtteranceRecord(), outcome="said")
    shown = state_of(plugin)["conversations"]
    assert shown["n"] == 2
    assert shown["shown"][0] == {
        "log_id": "speaking",
        "agent": "Reception",
        "speaking": True,
        "unplayed_s": 0.25,
    }


def shown(**settings: Any) -> dict[str, str]:
    """The settings on the page, by their fields."""
    plugin = a_plugin(settings_of=lambda context: Settings(**settings))
    names = [each.name for each in fields(Settings)]
    told = state_of(plugin)["settings"]
    assert len({each["name"] for each in told}) == len(names)
    return {name: each["value"] for name, each in zip(names, told, strict=True)}


def test_every_setting_is_shown_by_what_it_is_to_a_person() -> None:
    plugin = a_plugin(settings_of=lambda context: Settings(voice="ryan"))
    told = {each["name"]: each["value"] for each in state_of(plugin)["settings"]}
    assert told[page_module.SETTINGS["voice"]] == "ryan"
    assert len(told) == len(fields(Settings))
    assert page_module.SETTINGS.keys() == {each.name for each in fields(Settings)}


def test_of_secrets_only_that_they_are_set_is_shown() -> None:
    told = shown(
        api_key="hidden-1", sip_password="hidden-2", url="ws://user:hidden-3@speech/v1/speech"
    )
    assert "hidden" not in json.dumps(told)
    assert (told["api_key"], told["sip_password"]) == ("set", "set")
    assert (shown()["api_key"], shown()["sip_password"]) == ("", "")
    secret = {each.name for each in fields(Settings) if each.metadata.get("secret")}
    # The collector's address is shown without what is secret in it.
    assert secret - {"otel"} == page_module.SECRETS


def test_the_values_in_force_are_shown_as_they_are() -> None:
    told = shown(
        linger_ms=0, live=False, speed=1.5, sip_allow=("+49*",), sip_rtp_ports=(4000, 4998)
    )
    assert (told["linger_ms"], told["live"], told["speed"]) == ("0", "no", "1.5")
    assert (told["sip_allow"], told["sip_rtp_ports"]) == ("+49*", "4000, 4998")
    assert told["stall_ms"] == str(Settings().stall_ms)


def test_a_part_that_breaks_leaves_the_others_to_be_seen() -> None:
    plugin = a_plugin(conversations={"a": object()})
    state = state_of(plugin)
    assert state["unread"] == ["conversations"]
    assert state["conversations"] is None
    assert state["connection"]["up"]
    assert state["records"]["problems"][0]["what"] == "admin page, conversations"


# --- everything is text


def a_hostile_plugin() -> Any:
    choices = SimpleNamespace(log_text=True, latency_log=None, e2e_log=None, otel=None)
    records = Records(lambda: choices)
    record = UtteranceRecord(voice=EVIL, engine=EVIL, text=EVIL)
    record.mark(Mark.TEXT_IN, 1.0)
    records.utterance(
        EVIL, EVIL, record, outcome=EVIL, error=EVIL, heard=EVIL + "\ud83d", remaining=EVIL
    )
    records.problem(EVIL, ValueError(EVIL), EVIL)
    records.count(EVIL)
    plugin = a_plugin(
        records=records,
        conversations={EVIL: SimpleNamespace(speaking=True, unplayed_s=1.0)},
        voices=SimpleNamespace(known=(wish(EVIL),), problems={wish(EVIL): EVIL}),
        settings_of=lambda context: SimpleNamespace(voice=EVIL, barrier=frozenset({EVIL})),
    )
    state = plugin.link.state
    state.url = state.engine = state.model = EVIL
    state.voices, state.last_error = [EVIL], ConnectionLost(EVIL, remedy=EVIL)
    return plugin


async def test_what_is_hostile_reaches_the_page_as_data_alone(ask: Ask) -> None:
    plugin = a_hostile_plugin()
    html = (await ask(plugin, "/mr_qwen3tts")).text
    assert "<img" not in html
    assert "alert" in html
    assert html.count("<script") == html.count("</script>") == 2
    data = re.search(r'<script type="application/json" id="first">(.*?)</script>', html, re.S)
    assert data is not None
    told = json.loads(data[1])
    assert told["unread"] == []
    assert told["records"]["utterances"][0]["agent"] == EVIL


async def test_half_an_emoji_in_a_kept_text_does_not_break_the_state(ask: Ask) -> None:
    answer = await ask(a_hostile_plugin(), "/mr_qwen3tts/state")
    assert answer.json()["records"]["utterances"][0]["heard"].endswith("\ud83d")


def test_the_script_puts_in_nothing_as_markup() -> None:
    script = (PLUGIN / "static" / "page.js").read_text("utf-8")
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "createContextualFragment",
        "DOMParser",
        "setHTML",
    ):
        assert way not in script


def test_the_script_finds_each_element_that_it_names() -> None:
    script = (PLUGIN / "static" / "page.js").read_text("utf-8")
    html = (PLUGIN / "templates" / "page.jinja2").read_text("utf-8")
    named = set(re.findall(r'(?:byId|setText)\("([\w-]+)"', script))
    assert named
    assert named <= set(re.findall(r'id="([\w-]+)"', html))


# --- self-contained


async def test_the_page_runs_no_script_but_its_own(ask: Ask) -> None:
    answer = await ask(a_plugin(), "/mr_qwen3tts")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\son\w+=|\sstyle=", answer.text)


@pytest.mark.parametrize("name", ["templates/page.jinja2", "static/page.css", "static/page.js"])
def test_nothing_comes_from_elsewhere(name: str) -> None:
    text = (PLUGIN / name).read_text("utf-8")
    assert not re.search(r"https?:|url\(|@import|=\"//", text)


async def test_a_changed_file_has_another_address(ask: Ask) -> None:
    html = (await ask(a_plugin(), "/mr_qwen3tts")).text
    assert len(set(re.findall(r"page\.(?:css|js)\?v=([0-9a-f]{12})", html))) == 1
