from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.providers import ProviderManager
from mr_qwen3tts.host import Host
from mr_qwen3tts.response_sink import SipSink
from qwen3tts_pacer.slot import Frame
from tests.fakes import FakeClock, settle
from tests.mindroot_host.playout import Playout, played

START = 100.0
SAMPLES = 480


class Sip:
    """A SIP plugin in a host; notes what it is told, and does what a test wants of it."""

    def __init__(self, *, old: bool = False) -> None:
        self.clock = FakeClock(START)
        self.events: list[tuple[float, str, Any]] = []
        self.contexts: list[object] = []
        self.halts: list[float] = []
        self.live = True
        self.halted = False
        self.takes_s = 0.0
        self.starting_s = 0.0
        self.ending_s = 0.0
        self.broken: set[str] = set()
        services = ProviderManager()
        names: list[Callable[..., Any]] = [self.sip_audio_out_chunk]
        if not old:
            names += [self.sip_start_audio_response, self.sip_end_audio_response]
        for each in names:
            services.register_function(each.__name__, "mr_sip", each)
        self.host = Host(services, ProviderManager())

    async def sip_audio_out_chunk(self, audio_chunk: bytes, context: Any = None) -> bool:
        self.note("chunk", base64.b64encode(audio_chunk), context)
        await self.nap(self.takes_s)
        return not self.halted

    async def sip_start_audio_response(self, context: Any) -> bool:
        self.note("start", None, context)
        await self.nap(self.starting_s)
        return self.live

    async def sip_end_audio_response(self, context: Any) -> bool:
        self.note("end", None, context)
        await self.nap(self.ending_s)
        return True

    def note(self, what: str, value: Any, context: object) -> None:
        self.events.append((self.clock.now(), what, value))
        self.contexts.append(context)
        if what in self.broken:
            raise OSError(f"no {what}")

    async def nap(self, seconds: float) -> None:
        if seconds:
            await self.clock.sleep_until(self.clock.now() + seconds)

    @property
    def story(self) -> str:
        """What happened, a letter each: start, chunk, end."""
        return "".join(what[0] for _, what, _ in self.events)

    def times(self, what: str) -> list[float]:
        return [round(at - START, 6) for at, each, _ in self.events if each == what]

    def playout(self) -> Playout:
        return played([(at, what, value) for at, what, value in self.events])


@asynccontextmanager
async def sinking(sip: Sip, *, lead_ms: int = 60, linger_ms: int = 300) -> AsyncIterator[SipSink]:
    sink = SipSink(
        sip.host,
        "context",
        lead_ms=lead_ms,
        linger_ms=linger_ms,
        clock=sip.clock,
        on_halted=lambda: sip.halts.append(round(sip.clock.now() - START, 6)),
    )
    yield sink
    await sink.close()


@pytest.fixture
def sip() -> Sip:
    return Sip()


def frames(context: int, first: int, count: int) -> list[Frame]:
    return [
        Frame(
            bytes([index % 100]) * 160,
            b"\x70" * 160,
            None,
            context,
            index * SAMPLES,
            (index + 1) * SAMPLES,
        )
        for index in range(first, first + count)
    ]


def say(sink: SipSink, context: int, count: int, *, finish: bool = True) -> None:
    sink.begin(context, "voice")
    sink.write(frames(context, 0, count))
    if finish:
        sink.finish(context)


async def test_the_first_frame_opens_a_response_and_goes_out_at_once(sip: Sip) -> None:
    async with sinking(sip) as sink:
        say(sink, 1, 1, finish=False)
        await settle()
        assert sip.story == "sc"
        assert sip.times("chunk") == [0.0]
        assert sip.contexts == ["context", "context"]
        assert sink.open
        assert sink.frames == 1


async def test_the_response_is_closed_when_it_has_been_silent(sip: Sip) -> None:
    async with sinking(sip, linger_ms=300) as sink:
        say(sink, 1, 5)
        await sip.clock.advance(2.0)
        # Five frames and a fade, heard 20 ms after their place.
        assert sip.story == "sccccc" + "c" + "e"
        assert sip.times("end") == [pytest.approx(6 * 0.02 + 0.02 + 0.3)]
        assert not sink.open


async def test_utterances_one_after_the_other_share_a_response(sip: Sip) -> None:
    async with sinking(sip, linger_ms=300) as sink:
        for context in (1, 2, 3):
            say(sink, context, 5)
            await sip.clock.advance(0.4)
        await sip.clock.advance(2.0)
        assert sip.story.count("s") == sip.story.count("e") == 1
        assert not sip.playout().thrown_away


async def test_a_response_is_held_open_while_more_is_expected(sip: Sip) -> None:
    async with sinking(sip, linger_ms=100) as sink:
        sink.hold_open = True
        say(sink, 1, 5)
        await sip.clock.advance(5.0)
        assert sink.open
        sink.hold_open = False
        await sip.clock.advance(0.2)
        assert sip.story.endswith("e")


async def test_a_response_stays_open_while_an_utterance_lacks_sound(sip: Sip) -> None:
    async with sinking(sip, linger_ms=100) as sink:
        say(sink, 1, 5, finish=False)
        await sip.clock.advance(3.0)
        sink.write(frames(1, 5, 5))
        sink.finish(1)
        await sip.clock.advance(1.0)
        assert sip.story.count("s") == 1
        assert len(sip.playout().frames) == 12


async def test_a_start_never_cuts_an_old_tail(sip: Sip) -> None:
    async with sinking(sip, lead_ms=200, linger_ms=0) as sink:
        for context in range(1, 20):
            say(sink, context, 3 + context % 5)
            await sip.clock.advance(0.02 * context)
        await sip.clock.advance(2.0)
    assert not sip.playout().thrown_away
    assert sip.playout().responses[0].frames


async def test_an_interruption_closes_the_response_at_once(sip: Sip) -> None:
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await sip.clock.advance(0.1)
        before = sip.story
        sink.interrupt()
        await sip.clock.advance(1.0)
        assert sip.story == before + "e"
        assert sip.times("end") == [0.1]
        assert sink.frames == before.count("c")


async def test_the_caller_hears_no_more_than_the_lead_after_a_stop(sip: Sip) -> None:
    async with sinking(sip, lead_ms=60) as sink:
        say(sink, 1, 50)
        await sip.clock.advance(0.213)
        sink.interrupt()
        await sip.clock.advance(1.0)
        heard_until = sip.playout().frames[-1][0] + 0.02 - START
        assert heard_until <= 0.213 + 0.06 + 0.02


async def test_the_next_reply_begins_after_the_old_one_has_been_closed(sip: Sip) -> None:
    sip.ending_s = 0.03
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await settle()
        sink.interrupt()
        say(sink, 2, 2)
        await sip.clock.advance(1.0)
        assert sip.story == "scccc" + "e" + "sccc" + "e"


async def test_an_interruption_while_a_response_is_opened_gives_no_frame(sip: Sip) -> None:
    sip.starting_s = 0.05
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await sip.clock.advance(0.02)
        sink.interrupt()
        await sip.clock.advance(1.0)
        assert sip.story == "se"
        assert sip.halts == []


async def test_an_interruption_while_the_last_response_is_closed_gives_no_frame(
    sip: Sip,
) -> None:
    sip.ending_s = 0.05
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await settle()
        sink.interrupt()
        say(sink, 2, 50)
        await sip.clock.advance(0.02)
        sink.interrupt()
        await sip.clock.advance(1.0)
        assert sip.story == "scccce"


async def test_a_response_is_closed_once_though_a_chunk_takes_long(sip: Sip) -> None:
    sip.takes_s = 1.0
    async with sinking(sip, linger_ms=20) as sink:
        say(sink, 1, 1)
        await sip.clock.advance(0.5)
        sink.interrupt()
        await sip.clock.advance(2.0)
        assert sip.story == "sce"
        assert sip.times("end") == [1.0]


async def test_a_refused_chunk_stops_everything_and_is_told_once(sip: Sip) -> None:
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await sip.clock.advance(0.1)
        sip.halted = True
        before = len(sip.times("chunk"))
        await sip.clock.advance(1.0)
        assert len(sip.times("chunk")) == before + 1
        assert sip.halts == [0.12]
        assert sip.story.endswith("ce")
        assert sink.frames == before
        sip.halted = False
        say(sink, 2, 1)
        await sip.clock.advance(0.01)
        assert sip.story.endswith("escc")


async def test_no_call_means_no_frame(sip: Sip) -> None:
    sip.live = False
    async with sinking(sip) as sink:
        say(sink, 1, 5)
        await sip.clock.advance(1.0)
        assert sip.story == "s"
        assert len(sip.halts) == 1
        assert not sink.open


async def test_a_frame_that_raises_counts_as_a_refusal(sip: Sip) -> None:
    sip.broken = {"chunk"}
    async with sinking(sip) as sink:
        say(sink, 1, 5)
        await sip.clock.advance(0.2)
        assert sip.story == "sce"
        assert sip.halts == [0.0]
        assert str(sink.error) == "no chunk"
        sip.broken = set()
        say(sink, 2, 1)
        await sip.clock.advance(0.1)
        assert sip.story == "scescc"


async def test_a_start_that_raises_is_no_refusal_of_the_frames(sip: Sip) -> None:
    sip.broken = {"start"}
    async with sinking(sip) as sink:
        say(sink, 1, 5)
        await sip.clock.advance(0.2)
        assert sip.story[:6] == "sccccc"
        assert not sip.halts
        assert sink.open


async def test_an_end_that_raises_is_no_harm(sip: Sip) -> None:
    sip.broken = {"end"}
    async with sinking(sip, linger_ms=20) as sink:
        say(sink, 1, 1)
        await sip.clock.advance(1.0)
        assert str(sink.error) == "no end"
        say(sink, 2, 1)
        await sip.clock.advance(1.0)
        assert sip.story == "scce" * 2
        assert sip.halts == []


async def test_a_sip_plugin_without_responses_gets_frames_alone() -> None:
    sip = Sip(old=True)
    async with sinking(sip) as sink:
        say(sink, 1, 3)
        await sip.clock.advance(0.1)
        sink.interrupt()
        say(sink, 2, 3)
        await sip.clock.advance(1.0)
    assert set(sip.story) == {"c"}


async def test_another_context_of_the_same_call_is_taken(sip: Sip) -> None:
    async with sinking(sip) as sink:
        say(sink, 1, 1)
        await settle()
        sink.context = "other"
        await sip.clock.advance(1.0)
        assert sip.contexts[0] == "context"
        assert sip.contexts[-1] == "other"


async def test_closing_ends_the_response(sip: Sip) -> None:
    sip.ending_s = 0.01
    async with sinking(sip) as sink:
        say(sink, 1, 50)
        await sip.clock.advance(0.1)
        closing = asyncio.ensure_future(sink.close())
        await sip.clock.advance(0.1)
        assert closing.done()
        assert sip.times("end") == [0.1]
        say(sink, 2, 5)
        await sip.clock.advance(1.0)
        assert sip.story.endswith("e")


# --- what the caller hears


@given(
    chunks=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    late=st.lists(st.floats(0.0, 1.0), min_size=30, max_size=30),
    naps=st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.015]), min_size=7, max_size=7),
    lead_ms=st.sampled_from([40, 60, 80]),
)
async def test_sound_that_comes_in_time_is_played_without_a_silent_tick(
    chunks: list[int], late: list[float], naps: list[float], lead_ms: int
) -> None:
    sip = Sip()
    takes = iter(naps * 1000)

    async def nap(seconds: float) -> None:
        if (taken := next(takes)) > 0.0:
            await sip.clock.sleep_until(sip.clock.now() + taken)

    sip.nap = nap  # type: ignore[method-assign]
    async with sinking(sip, lead_ms=lead_ms) as sink:
        sink.begin(1, "voice")
        sent = 0
        for count, share in zip(chunks, late, strict=False):
            # Between at once and just before what lies there has been played.
            latest = START + sent * 0.02 - 0.02
            now = sip.clock.now()
            await sip.clock.advance(max(0.0, share * (latest - now)))
            sink.write(frames(1, sent, count))
            sent += count
        sink.finish(1)
        await sip.clock.advance(sent * 0.02 + 1.0)
        assert (await sink.drained(1)).starvations == 0
    playout = sip.playout()
    assert playout.silent_ticks == 0
    assert [frame[0] for _, frame in playout.frames[:sent]] == [n % 100 for n in range(sent)]
    assert not sip.halts


async def test_a_host_that_is_busy_for_less_than_the_lead_is_not_heard(sip: Sip) -> None:
    async with sinking(sip, lead_ms=60) as sink:
        say(sink, 1, 200)
        for _ in range(10):
            await sip.clock.advance(0.2)
            sip.takes_s = 0.055
            await sip.clock.advance(0.02)
            sip.takes_s = 0.0
        await sip.clock.advance(3.0)
        assert sip.playout().silent_ticks == 0
        assert len(sip.playout().frames) == 201
