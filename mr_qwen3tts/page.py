"""Admin page: connection, utterances, problems.

The host loads routers only from a ``src/`` layout: the plugin includes this one. All text is
inserted as text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from fastapi import APIRouter, HTTPException, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from .records import Records, without_secrets
from .settings import Settings

HERE = Path(__file__).parent
PATH = "/mr_qwen3tts"
MEDIA_TYPES = {"page.css": "text/css", "page.js": "text/javascript"}
"""Public files beside the page."""
MAX_SHOWN = 100
"""Conversations and voices shown."""
MAX_LABEL_CHARS = 200
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
SETTINGS = {
    "url": "Speech server",
    "api_key": "Key of the speech server",
    "fallback_url": "Speech server while that one is away",
    "voice": "Voice",
    "language": "Language",
    "instructions": "How to speak",
    "mode": "Mode",
    "speed": "Rate of speech",
    "seed": "Start of the random numbers",
    "initial_codec_chunk_frames": "Codec frames in the first chunk",
    "ref_audio": "Recording to clone",
    "ref_text": "Words of that recording",
    "recordings_dir": "Folder of recordings",
    "private_recordings": "Recordings from private networks",
    "voice_wait_ms": "Longest wait for a voice, ms",
    "live": "Speaks while the model writes",
    "lead_ms": "Lead handed to the phone, ms",
    "wait_ms": "Longest wait for a server, ms",
    "resume_ms": "Longest wait for a server in the middle of a reply, ms",
    "stall_ms": "A silent server is given up after, ms",
    "return_ahead_ms": "speak returns with at most this unplayed, ms",
    "linger_ms": "Audio response stays open after a turn, ms",
    "idle_s": "A silent conversation is forgotten after, s",
    "barrier": "Commands that wait for the sound",
    "barrier_ms": "Longest wait of these commands, ms",
    "partial_stall_ms": "Partials that stop are cancelled after, ms",
    "markup": "Markup is taken out",
    "local": "Without a phone",
    "local_dir": "Folder of sound without a phone",
    "log_text": "Words are kept",
    "latency_log": "Latency log",
    "e2e_log": "End-to-end log",
    "otel": "Collector of spans",
    "sip_listen": "Telephone listens at",
    "sip_advertised": "Telephone is reached at",
    "sip_rtp_ports": "Telephone's RTP ports",
    "sip_server": "Telephone's registrar",
    "sip_user": "Telephone's user",
    "sip_password": "Telephone's password",
    "sip_agent": "Agent that takes calls",
    "sip_allow": "Numbers that may be called",
    "sip_transfers": "Transfers that far ends ask for",
    "sip_answer_s": "Longest wait for an answer, s",
    "sip_max_calls": "Calls at the same time",
    "sip_unavailable_file": "Sound file for callers while no speech server is there",
    "sip_call_budget": "Turns and characters of a call: a minute, in all",
    "sip_process_budget": "Turns and characters of all calls: a minute, in all",
    "sip_too_many": "Said when the turns of a minute are used up",
    "sip_used_up": "Said when all turns of a call are used up",
    "sip_audio_in_pipeline": "Callers' sound goes to the host",
    "sip_stt": "Recogniser of callers' words",
    "sip_stt_languages": "Languages of callers",
    "sip_pause_ms": "Pause that ends a caller's turn, ms",
    "sip_overlap": "A caller's voice over the agent's stops it, or ducks it",
    "sip_smart_turn": "File of the turn detector Smart Turn",
    "speak_command": "Command that speaks",
    "unknown": "Variables that are none of ours",
    "freeze_heap": "Loaded modules are exempt from garbage collection",
    "ignored": "Old variables without a meaning here",
}
"""Labels, by default names."""
SECRETS = frozenset(each.name for each in fields(Settings) if each.metadata.get("secret")) - {
    "otel"
}
"""Shown as set or not; keys in addresses are always removed."""


class PluginView(Protocol):
    """Plugin as the page reads it."""

    @property
    def link(self) -> Any:
        """With ``state``."""

    @property
    def records(self) -> Records: ...

    @property
    def voices(self) -> Any:
        """With ``known`` and ``problems``."""

    @property
    def conversations(self) -> Mapping[str, Any]:
        """By log_id, with ``speaking`` and ``unplayed_s``."""

    def settings_of(self, context: Any) -> Any:
        """Return the settings; None: the plugin's."""


def make_router(plugin: PluginView, admin: Any) -> APIRouter:
    """Return the page and its state at `PATH`.

    ``admin`` is the host's ``requires_role("admin")``, a FastAPI dependency.
    """
    router = APIRouter(prefix=PATH, include_in_schema=False)
    static = {name: (HERE / "static" / name).read_bytes() for name in MEDIA_TYPES}
    stamp = sha256(b"".join(static.values())).hexdigest()[:12]
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
    )
    template = environment.get_template("page.jinja2")

    @router.get("", dependencies=[admin])
    async def page() -> Response:
        html = template.render(state=state_of(plugin), stamp=stamp, version=own_version())
        headers = {
            "Cache-Control": "no-store",
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
        return Response(html, media_type="text/html", headers=headers)

    @router.get("/state", dependencies=[admin])
    async def state() -> Response:
        # ASCII only: half an emoji in a kept text must not break the answer's encoding.
        body = json.dumps(state_of(plugin), separators=(",", ":"), allow_nan=False)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return Response(body, media_type="application/json", headers=headers)

    @router.get("/static/{name}")
    async def file(name: str) -> Response:
        if name not in static:
            raise HTTPException(status_code=404)
        headers = {"Cache-Control": "max-age=86400", "X-Content-Type-Options": "nosniff"}
        return Response(static[name], media_type=MEDIA_TYPES[name], headers=headers)

    return router


def own_version() -> str:
    """Return the version, or empty."""
    try:
        return version("mr_qwen3tts")
    except PackageNotFoundError:
        return ""


def state_of(plugin: PluginView) -> dict[str, Any]:
    """Return the state as JSON; failed parts are in ``unread``."""
    parts: dict[str, Callable[[], Any]] = {
        "connection": lambda: _connection(plugin),
        "voices": lambda: _voices(plugin),
        "conversations": lambda: _conversations(plugin),
        "telephone": lambda: _telephone(getattr(plugin, "desk", None)),
        "settings": lambda: _settings(plugin.settings_of(None)),
        "records": lambda: plugin.records.snapshot(),
    }
    state: dict[str, Any] = {}
    unread = []
    for name, read in parts.items():
        try:
            state[name] = read()
        except Exception as error:
            plugin.records.problem(f"admin page, {name}", error)
            state[name] = None
            unread.append(name)
    return {**state, "unread": unread}


def _connection(plugin: PluginView) -> dict[str, Any]:
    state = plugin.link.state
    error = getattr(state, "last_error", None)
    message = getattr(error, "message", None) or (str(error) if error else "")
    return {
        "url": _label(getattr(state, "url", "")),
        "up": bool(getattr(state, "up", False)),
        "since_unix_s": _number(getattr(state, "since", None)),
        "engine": _label(getattr(state, "engine", None) or ""),
        "model": _label(getattr(state, "model", None) or ""),
        "using_fallback": bool(getattr(state, "using_fallback", False)),
        "attempts": _number(getattr(state, "attempts", None)) or 0,
        "error": _text(message),
        "remedy": _text(getattr(error, "remedy", "")),
    }


def _voices(plugin: PluginView) -> dict[str, Any]:
    offered = list(getattr(plugin.link.state, "voices", None) or ())
    known = list(plugin.voices.known)
    problems = list(plugin.voices.problems.items())
    return {
        "offered": _labels(offered),
        "offered_n": len(offered),
        "known": _labels(known),
        "known_n": len(known),
        "problems": [
            {"voice": _label(request), "problem": _text(problem)}
            for request, problem in problems[:MAX_SHOWN]
        ],
    }


def _conversations(plugin: PluginView) -> dict[str, Any]:
    agents = {each.log_id: each.agent for each in plugin.records.last}
    shown = [
        {
            "log_id": _label(log_id),
            "agent": _label(agents.get(log_id, "")),
            "speaking": bool(each.speaking),
            "unplayed_s": _number(each.unplayed_s) or 0.0,
        }
        for log_id, each in plugin.conversations.items()
    ]
    shown.sort(key=lambda each: not each["speaking"])
    return {"n": len(shown), "shown": shown[:MAX_SHOWN]}


def _telephone(desk: Any) -> dict[str, Any] | None:
    if desk is None:
        return None
    state = desk.snapshot()
    calls = [
        {
            "log_id": _label(each["log_id"]),
            "direction": _label(each["direction"]),
            "remote": _label(each["remote"]),
            "seconds": _number(each["seconds"]) or 0,
        }
        for each in state["calls"]
    ]
    return {
        "uri": _label(state["uri"] or ""),
        "trouble": _text(state["trouble"] or ""),
        "n": len(calls),
        "calls": calls[:MAX_SHOWN],
    }


def _settings(settings: Any) -> list[dict[str, str]]:
    return [
        {
            "name": SETTINGS.get(each.name, each.name.replace("_", " ")),
            "value": _shown(getattr(settings, each.name), secret=each.name in SECRETS),
        }
        for each in fields(Settings)
        if hasattr(settings, each.name)
    ]


def _shown(value: object, *, secret: bool = False) -> str:
    if secret:
        return "set" if value else ""
    match value:
        case None | "" | () | []:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return str(value)
        case set() | frozenset():
            return _text(", ".join(sorted(map(str, value))))
        case tuple() | list():
            return _text(", ".join(map(str, value)))
        case _:
            return _text(value)


def _labels(voices: Iterable[object]) -> list[str]:
    return [_label(voice) for _, voice in zip(range(MAX_SHOWN), voices, strict=False)]


def _label(thing: object) -> str:
    if isinstance(thing, Mapping):
        thing = thing.get("name") or thing.get("id") or ""
    elif not isinstance(thing, str):
        name = getattr(thing, "name", None) or getattr(thing, "id", None)
        samples = [Path(str(each)).name for each in getattr(thing, "samples", ())]
        thing = name or ", ".join(samples) or "the server's default"
    return without_secrets(str(thing))[:MAX_LABEL_CHARS]


def _text(value: object) -> str:
    return without_secrets(str(value or ""))


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and math.isfinite(value):
        return round(value, 3)
    return None
