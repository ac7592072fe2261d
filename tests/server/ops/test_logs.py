"""What is written down, and what never is."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3tts_server.gate import AccessLog
from qwen3tts_server.logs import (
    LIBRARIES,
    MAX_CHARS,
    MAX_TRACEBACK_CHARS,
    JsonLines,
    LogSettings,
    TextLines,
    configure_logs,
    request_id,
)
from qwen3tts_server.metrics import UtteranceLog
from qwen3tts_server.settings import ServerSettings
from qwen3tts_server.speech_stream import NullObserver, SpeechStream
from qwen3tts_wire.formats import AudioFormat
from qwen3tts_wire.messages import ContextOpen, PlayoutReport
from tests.engine.fake_engine import FakeEngine
from tests.server.ops.asgi import Reached, scope_of, sent_by

log = logging.getLogger("qwen3tts_server.tried")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    names = ("", "qwen3tts_server.text", "qwen3tts_server.settings", *LIBRARIES)
    levels = {name: logging.getLogger(name).level for name in names}
    handlers = list(logging.getLogger().handlers)
    yield
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def written(**settings: Any) -> io.StringIO:
    out = io.StringIO()
    configure_logs(LogSettings(**settings), out)
    return out


def record(message: str, **more: Any) -> logging.LogRecord:
    made = logging.makeLogRecord({"msg": message, "name": "n", "levelname": "INFO", **more})
    made.created = 0.25
    return made


def test_a_json_line_holds_the_event_and_its_fields() -> None:
    out = written(form="json")
    log.info("said %d", 3, extra={"fields": {"ms": 1.5, "message": "not taken"}})
    line = json.loads(out.getvalue())
    assert line["message"] == "said 3"
    assert (line["level"], line["logger"], line["ms"]) == ("info", log.name, 1.5)
    assert line["time"].endswith("Z")


def test_a_text_line_holds_the_same() -> None:
    line = TextLines().format(record("said", fields={"ms": 1.5, "who": "me", "all": {"a": 1}}))
    assert line == '1970-01-01T00:00:00.250Z INFO n: said ms=1.5 who=me all={"a": 1}'


def test_a_line_names_its_request() -> None:
    token = request_id.set("abc")
    try:
        assert json.loads(JsonLines().format(record("m")))["request"] == "abc"
        assert TextLines().format(record("m")).endswith(" request=abc")
    finally:
        request_id.reset(token)
    assert "request" not in JsonLines().format(record("m"))


def error_of(message: str) -> Any:
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        return (RuntimeError, error, error.__traceback__)


def test_an_error_brings_how_it_came_about() -> None:
    line = json.loads(JsonLines().format(record("m", exc_info=error_of("broke"))))
    assert "error_of" in line["error"]
    text = TextLines().format(record("m", exc_info=error_of("broke\nINFO fake: line")))
    assert all(each.startswith("    ") for each in text.splitlines()[1:])
    assert len(JsonLines().format(record("m", exc_info=error_of("x" * 10**6)))) < (
        MAX_TRACEBACK_CHARS + 1000
    )


@given(st.text(), st.text())
def test_no_message_makes_two_lines_or_steers_a_terminal(message: str, value: str) -> None:
    made = record(message.replace("%", "%%"), fields={"a": value})
    for form in (JsonLines(), TextLines()):
        line = form.format(made)
        assert line.splitlines() in ([line], [])
        assert all(char >= " " and not "\x7f" <= char <= "\x9f" for char in line)
    json.loads(JsonLines().format(made))


def test_a_message_has_an_end() -> None:
    assert len(TextLines().format(record("x" * 10**6))) < MAX_CHARS + 100


def test_the_level_is_kept_to() -> None:
    out = written(level="warning")
    log.info("no")
    log.warning("yes")
    assert "yes" in out.getvalue()
    assert "no" not in out.getvalue().replace("now", "")


def test_libraries_that_write_messages_and_headers_are_held_back() -> None:
    out = written(level="debug")
    logging.getLogger("httpcore.http11").debug("Authorization: Bearer key")
    logging.getLogger("httpx").info("POST http://upstream")
    logging.getLogger("websockets.client").debug("> TEXT 'what is said'")
    assert out.getvalue() == ""


# --- the access log ---


async def test_a_request_has_a_line_and_an_id() -> None:
    out = written(form="json")
    reached = Reached()
    scope = scope_of(path="/v1/models", query_string=b"api_key=secret")
    start, _ = await sent_by(AccessLog(reached), scope)
    line = json.loads(out.getvalue())
    assert line["message"] == "GET /v1/models"
    assert (line["status"], line["bytes_out"], line["client"]) == (200, 2, "192.0.2.7")
    assert dict(start["headers"])[b"x-request-id"].decode() == line["request"]
    assert reached.scopes[0]["state"]["request_id"] == line["request"]
    assert "secret" not in out.getvalue()
    assert not request_id.get()


@pytest.mark.parametrize(
    ("given_id", "kept"),
    [("abc-1.2:3_4", True), ("a" * 64, True), ("a" * 65, False), ("a b", False), ("a\n", False)],
)
async def test_an_id_that_comes_along_is_kept_where_it_is_good(given_id: str, kept: bool) -> None:
    scope = scope_of(headers=[("X-Request-Id", given_id)])
    start, _ = await sent_by(AccessLog(Reached()), scope)
    assert (dict(start["headers"])[b"x-request-id"].decode() == given_id) is kept


async def test_a_websocket_has_a_line_with_its_close_code() -> None:
    out = written(form="json")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await receive()
        await send({"type": "websocket.send", "bytes": b"1234"})
        await receive()

    await sent_by(
        AccessLog(app),
        scope_of("websocket", "/a\n\x1b[2Jb"),
        {"type": "websocket.connect"},
        {"type": "websocket.receive", "text": "abc"},
        {"type": "websocket.disconnect", "code": 1001},
    )
    line = json.loads(out.getvalue())
    assert line["message"] == "WEBSOCKET /a??[2Jb"
    assert (line["status"], line["bytes_in"], line["bytes_out"]) == (1001, 3, 4)


@pytest.mark.parametrize(("accepted", "status"), [(True, 1008), (False, 403)])
async def test_a_websocket_closed_by_the_server_has_its_code(accepted: bool, status: int) -> None:
    out = written(form="json")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if accepted:
            await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1008})

    await sent_by(AccessLog(app), scope_of("websocket"))
    assert json.loads(out.getvalue())["status"] == status


async def test_a_request_that_broke_is_told_as_500() -> None:
    out = written(form="json")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await sent_by(AccessLog(app), scope_of())
    assert json.loads(out.getvalue())["status"] == 500


async def test_what_looks_after_the_server_fills_no_log() -> None:
    out = written()
    for path in ("/health", "/ready", "/metrics"):
        await sent_by(AccessLog(Reached()), scope_of(path=path))
    assert out.getvalue() == ""


async def test_the_access_log_can_be_left_out() -> None:
    out = written(access=False)
    await sent_by(AccessLog(Reached()), scope_of())
    assert out.getvalue() == ""


async def test_the_applications_start_passes() -> None:
    reached = Reached()
    await sent_by(AccessLog(reached), {"type": "lifespan"})
    assert reached.scopes == [{"type": "lifespan"}]


# --- utterances ---


async def say(words: str) -> None:
    engine = FakeEngine()
    await engine.start()
    order = ContextOpen(
        context_id="c", context_no=1, voice="tone", format=AudioFormat("pcm_s16le", 24000)
    )
    observer = UtteranceLog(NullObserver(), "openai")
    async with SpeechStream(engine, order, ServerSettings(), observer) as speaking:
        speaking.append(words)
        speaking.end()
        async for _ in speaking:
            pass
    report = PlayoutReport(context_id="c", played=1, state="playing")
    observer.reported(speaking.utterance, report, 0.0)
    observer.errored("bad_request")
    speaking.utterance.counted = True
    observer.ended(speaking.utterance, "cancelled", 0.0)


async def test_an_utterance_has_a_line_without_its_words() -> None:
    out = written(form="json", level="debug")
    await say("Confidential words.")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    (line,) = [line for line in lines if line["logger"] == "qwen3tts_server.utterances"][:1]
    assert (line["message"], line["dialect"], line["chars"]) == ("done", "openai", 19)
    assert line["sent_s"] == line["made_s"] == pytest.approx(0.95)
    assert "onfidential" not in out.getvalue()
    assert "cancelled" not in out.getvalue()
    assert "bad_request" in out.getvalue()


async def test_words_are_written_where_that_is_asked_for() -> None:
    out = written(form="json", log_text=True)
    await say("Spoken words.")
    assert '"text": "Spoken words."' in out.getvalue()
