"""Fuzz targets: the gate's reading of headers, and settings as they are written."""

from __future__ import annotations

import asyncio
import contextlib

from qwen3tts_server.configuration import configuration_from, load_configuration
from qwen3tts_server.gate import Gate
from qwen3tts_server.keys import ApiKeys
from qwen3tts_server.settings import AccessSettings
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from tests.fuzz.target import Target, steps, story
from tests.server.ops.asgi import Reached, scope_of, sent_by

KEY = "the-one-key-that-is-taken"
KEY_64 = "dGhlLW9uZS1rZXktdGhhdC1pcy10YWtlbg"


def run_gate(data: bytes) -> None:
    """Steps: a header of some kind each; a WebSocket where a subprotocol is offered."""
    headers: list[tuple[bytes, bytes]] = []
    subprotocols: list[str] = []
    path = "/v1/models"
    for kind, rest in steps(data):
        if kind in "aoh":
            names = {"a": b"authorization", "o": b"origin", "h": b"host"}
            headers.append((names[kind], rest))
        elif kind == "s":
            subprotocols.append(rest.decode("latin-1"))
        elif kind == "p":
            path = rest.decode("utf-8", "replace")
    reached = Reached()
    app = Gate(reached, AccessSettings(api_keys=(KEY,)), ApiKeys((KEY,)))
    scope = scope_of("websocket" if subprotocols else "http", path, subprotocols=subprotocols)
    scope["headers"] = headers
    sent = asyncio.run(sent_by(app, scope))
    if reached.scopes:
        held = any(KEY.encode() in value for _, value in headers)
        held = held or any(each.startswith("bearer.") for each in subprotocols)
        assert held or path in ("/health", "/ready"), "let in without a key"
        assert not any(
            each.startswith("bearer.") for each in reached.scopes[0].get("subprotocols", ())
        )
    else:
        assert sent[0]["status"] in (401, 403)
    assert not app._under_way


def run_configuration(data: bytes) -> None:
    """The first step is a file, the others are variables of the environment and overrides."""
    env: dict[str, str] = {}
    overrides: list[str] = []
    for kind, rest in steps(data):
        text = rest.decode("utf-8", "replace")
        if kind == "f":
            with contextlib.suppress(BadConfiguration):
                configuration_from(from_yaml(text, "f"))
        elif kind == "e":
            name, _, value = text.partition("=")
            env[f"QWEN3TTS__{name}"] = value
        elif kind == "s":
            overrides.append(text)
    refused: list[BadConfiguration] = []
    try:
        load_configuration(None, env, overrides).hash()
    except BadConfiguration as error:
        refused.append(error)
    assert all(error.message and error.remedy for error in refused)


TARGETS = {
    "gate": Target(
        run_gate,
        "Whatever headers hold, nobody without a key is let in, and nothing breaks.",
        (
            story("aBearer " + KEY, "hlocalhost"),
            story("s" + "bearer." + KEY_64, "sqwen3tts.speech.v1"),
            story("ohttp://127.0.0.1:1", "h127.0.0.1:1", "aBearer x"),
            story("p/health"),
        ),
        (b"Bearer ", b"bearer.", KEY.encode(), KEY_64.encode(), b"http://", b"localhost", b"[::1]"),
    ),
    "configuration": Target(
        run_configuration,
        "Settings are read, or refused by a named error with a remedy.",
        (
            story("fserver:\n  port: 1\n  access: {origins: [a]}\n"),
            story("eSERVER__PORT=1", "sserver.port=2", "sengine.qwen3.model=m"),
            story('sstarters.phrases=["a", b]', "slogging.form=json"),
        ),
        (b"server", b"access", b"engine", b"qwen3", b"&a", b"*a", b"!!", b": ", b"- ", b"null"),
        # PyYAML takes a time in proportion to the square of how deep brackets are nested.
        most_bytes=1024,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "gate": (
        story("aBearer", "aBearer "),
        story(b"aBearer \xff\xfe"),
        story("aBasic " + KEY),
        story("s" + "bearer." + KEY_64, "s" + "bearer." + KEY_64 + "="),
        story(b"sbearer.\xff", "sbearer.%%%%", "sbearer."),
        story("ohttp://[::1", "h[::1"),
        story("ohttp://a:99999999999", "ha:99999999999"),
        story("onull", "o", "h", "h"),
        story("p/health/../v1/models"),
        story("p/health?", "p//health"),
    ),
    "configuration": (
        story("fa: &a {b: *a}"),
        story("f" + "{a: " * 60 + "}" * 60),
        story("f" + "[" * 900),
        story("f!!python/object/apply:os.system [ls]"),
        story("f? [a]\n: b"),
        story("fserver: {port: 0x1F}", "fserver: {port: 1_000}", "fserver: {port: 1:30}"),
        story(b"fserver: \x00", b"f\xef\xbb\xbf"),
        story("fserver: {frame_ms: .nan}", "fserver: {frame_ms: .inf}", "fserver: {port: 1e400}"),
        story("fserver: {port: " + "9" * 5000 + "}"),
        story("e=", "e__=", "eSERVER=", "eSERVER__=1", "eSERVER__PORT__X=1"),
        story("s=", "s.=1", "sserver=5", "sserver={port: 1}", "sserver.port=", "sserver.port=[["),
        story("sserver.access.api_keys=k", "eSERVER__ACCESS__API_KEYS=a b"),
        story("sengine.qwen3=null", "sengine.qwen3.graphs=auto", "sengine.qwen3={}"),
    ),
}
