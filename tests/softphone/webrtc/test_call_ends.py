"""How a call with a browser ends without a hang-up; without a network and real time."""

from __future__ import annotations

import asyncio
import importlib.util

import pytest

from qwen3tts_phone.call.call import LINGER_S
from qwen3tts_phone.call.events import CallEnded, MediaBegan, MediaSilent
from qwen3tts_phone.errors import (
    BadSdp,
    CalleeUnreachable,
    CallError,
    NoCommonCodec,
    StreamLost,
)
from qwen3tts_phone.softphone.webrtc.call import WebCall
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice
from qwen3tts_phone.softphone.webrtc.report import Report
from qwen3tts_phone.softphone.webrtc.settings import WebRtcSettings
from tests.fakes import FakeClock, settle
from tests.softphone.webrtc.calls import OFFER, faked, new_body
from tests.speech.fakes import FakeClient
from tests.streams.calls import fake_link


async def test_a_browser_that_never_connects_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async with faked(monkeypatch, settings=WebRtcSettings(connect_s=5.0)) as side:
        await side.clock.advance(4.9)
        assert side.call.state == "connecting"
        await side.clock.advance(0.2)
        assert await side.over() == "The browser was not reached within 5 s"
        with pytest.raises(CallError):
            await side.call.answered()
    ended = side.events[-1]
    assert isinstance(ended, CallEnded)
    assert (ended.by, ended.code) == ("timeout", CalleeUnreachable.code)
    assert "UDP" in ended.remedy


async def test_who_waits_for_the_answer_learns_that_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with faked(monkeypatch) as side:
        side.peer.changed("failed")
        with pytest.raises(CallError):
            await side.call.answer()
        await side.over()
        assert side.peer.closed == 1


async def test_a_lost_network_is_shown_and_one_that_comes_back_is_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        await side.runs(1)
        await side.runs(3, sound=False)
        figures = side.call.statistics()
        assert figures.state == "lost"
        assert figures.silent_ms > 2000
        await side.runs(0.5)
        assert side.call.state == "up"
        kinds = [type(event) for event in side.events]
        assert kinds.count(MediaSilent) == 1
        assert kinds.count(MediaBegan) == 2


async def test_a_network_that_stays_away_ends_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        await side.runs(1)
        await side.runs(21, sound=False)
        assert (await side.over()).startswith("The connection to the browser is lost")
    ended = side.events[-1]
    assert isinstance(ended, CallEnded)
    assert (ended.by, ended.code) == ("timeout", StreamLost.code)
    assert ended.remedy
    record = side.call.detail_record
    assert record is not None
    assert record.values["findings"][0] in ("stream_lost", "rtp_stopped")


@pytest.mark.parametrize(("silent_s", "by"), [(0.2, "remote"), (10.0, "error")])
async def test_a_closed_connection_was_hung_up_or_had_been_lost_before(
    monkeypatch: pytest.MonkeyPatch, silent_s: float, by: str
) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        await side.runs(0.5)
        await side.runs(silent_s, sound=False)
        side.peer.changed("closed")
        await side.over()
    ended = side.events[-1]
    assert isinstance(ended, CallEnded)
    assert ended.by == by


async def test_the_page_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        side.call.far_end_left("the tab was closed")
        assert side.call.over
        assert await side.over() == "the page hung up: the tab was closed"
        await side.call.hangup()  # harmless
        assert side.peer.closed == 1


async def test_hanging_up_lets_the_last_word_out_of_the_browsers_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        utterance = side.call.speak("Goodbye.")
        await settle(20)
        context = side.client.contexts[0]
        context.start()
        context.sound(200)
        context.done()
        spoken = asyncio.ensure_future(utterance.spoken())
        while not spoken.done():
            await side.clock.advance(0.02)
        assert not spoken.result().interrupted
        assert spoken.result().position == 4800
        hanging = asyncio.ensure_future(side.call.hangup())
        await side.clock.advance(LINGER_S - 0.03)
        assert side.peer.closed == 0
        assert await side.over() == "we hung up"
        await hanging
        assert side.peer.closed == 1


async def test_a_report_that_is_nonsense_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        before = side.call.sink.queued_s
        side.call.report(Report(jitter_buffer_ms=1e99, rtt_ms=1e99))
        assert side.call.sink.queued_s == before


async def test_keys_after_the_end_are_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    async with faked(monkeypatch) as side:
        await side.up()
        side.call.far_end_left()
        side.call.pressed("1")
        await side.over()
        assert side.call.facts.keys_in == ""


@pytest.mark.parametrize(
    ("offer", "codec", "error"),
    [
        ("nonsense", "auto", BadSdp),
        (OFFER.replace("a=rtpmap:111 opus/48000/2\r\n", ""), "opus", NoCommonCodec),
    ],
)
async def test_an_offer_that_cannot_be_taken_opens_nothing(
    offer: str, codec: CodecChoice, error: type[CallError]
) -> None:
    body = new_body(FakeClock(), fake_link(FakeClient()))
    with pytest.raises(error):
        await WebCall.made(body, offer, codec=codec)
    assert body.speaker is None


async def test_an_offer_that_only_looks_like_one_is_a_bad_offer() -> None:
    body = new_body(FakeClock(), fake_link(FakeClient()))
    odd = OFFER.replace("a=setup:actpass", "a=setup:holdconn")
    with pytest.raises(BadSdp, match="cannot be used") as told:
        await WebCall.made(body, odd)
    assert "P2uYro0" not in str(told.value)


async def test_without_aiortc_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    body = new_body(FakeClock(), fake_link(FakeClient()))
    with pytest.raises(CallError, match="aiortc") as told:
        await WebCall.made(body, OFFER)
    assert "mr_qwen3tts[webrtc]" in told.value.remedy
