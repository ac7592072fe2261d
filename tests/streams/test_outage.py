"""Streams while the speech server is gone: closed with the reason in the record, or a file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.streams.server import Streams
from qwen3tts_phone.streams.settings import StreamSettings
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.e2e.test_outage import wav
from tests.streams.asterisk_side import audiosocket, media

pytestmark = pytest.mark.network


async def without_server(tmp_path: Path, **settings: Any) -> Streams:
    """Streams whose link knows that its server is gone."""
    async with running_server(EmbeddedEngine(), host="127.0.0.1", port=0) as server:
        link = SpeechLink(server.url)
        await link.warm()
    records = RecordSettings(log=tmp_path / "calls.jsonl")
    return Streams(StreamSettings(records=records, insecure=True, **settings), link=link)


def kept(tmp_path: Path) -> dict[str, Any]:
    (line,) = (tmp_path / "calls.jsonl").read_text("utf-8").splitlines()
    return dict(json.loads(line))


async def test_an_audiosocket_stream_is_closed_with_the_reason_in_its_record(
    tmp_path: Path,
) -> None:
    async with await without_server(tmp_path, kinds=("audiosocket",)) as streams:
        taking = asyncio.ensure_future(anext(aiter(streams)))
        async with audiosocket(streams.audiosocket_port) as far:
            far.start()
            await far.until(far.closed.is_set)
        await streams.drained()
        assert not taking.done()
        taking.cancel()
        await streams.link.close()
    end = kept(tmp_path)["end"]
    assert (end["by"], end["status"], end["error"]) == ("local", 503, "connection_lost")


async def test_a_websocket_stream_is_closed_as_well(tmp_path: Path) -> None:
    async with await without_server(tmp_path, kinds=("asterisk",)) as streams:
        async with media(streams.port) as far:
            await far.start()
            async with asyncio.timeout(20):
                await far.connection.wait_closed()
        await streams.drained()
        await streams.link.close()
    assert kept(tmp_path)["end"]["error"] == "connection_lost"


async def test_a_carriers_webhook_gets_503_and_retry_after(tmp_path: Path) -> None:
    async with (
        await without_server(tmp_path, kinds=("twilio", "asterisk")) as streams,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{streams.port}") as http,
    ):
        answer = await http.get("/twilio/answer")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
        assert (await http.get("/asterisk/answer")).status_code == 404
        url = streams.link.url
        async with running_server(
            EmbeddedEngine(), host="127.0.0.1", port=int(url.rsplit(":", 1)[1].partition("/")[0])
        ):
            assert streams.link.connections[0].failed_at is not None
            streams.link.connections[0].failed_at = -1e9
            assert (await http.get("/twilio/answer")).status_code == 200
        await streams.link.close()


async def test_a_file_is_played_and_the_stream_ends(tmp_path: Path) -> None:
    file = wav(tmp_path / "sorry.wav")
    kinds = ("audiosocket", "twilio")
    async with (
        await without_server(tmp_path, kinds=kinds, unavailable_file=file) as streams,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{streams.port}") as http,
    ):
        assert (await http.get("/twilio/answer")).status_code == 200, "the stream hears the file"
        async with audiosocket(streams.audiosocket_port) as far:
            far.start()
            await far.until(far.closed.is_set)
            heard = np.frombuffer(bytes(far.heard), "<i2").astype(int)
        await streams.drained()
        await streams.link.close()
    assert np.abs(heard).max() > 4000
    record = kept(tmp_path)
    assert record["answered_s"] is not None
    assert record["end"]["error"] == "connection_lost"


def test_a_file_that_cannot_be_played_is_refused_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^unavailable_file=.*cannot be read"):
        StreamSettings(unavailable_file=tmp_path / "none.wav")
