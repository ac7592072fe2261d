"""A page joined to real telephone calls: SIP phones and a PBX's stream, with aiortc as the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import numpy as np
import pytest

from qwen3tts_phone import Phone, Streams
from qwen3tts_phone.call.phone_call import PhoneCall
from qwen3tts_phone.dialling.guard import GuardSettings
from qwen3tts_phone.errors import BadSip, CallNotAllowed
from qwen3tts_phone.softphone.bridge import CallBridge
from qwen3tts_phone.softphone.gateway import Gateway
from qwen3tts_phone.softphone.messages import State
from qwen3tts_phone.softphone.webrtc.call import WebCall
from qwen3tts_phone.softphone.webrtc.offer import CodecChoice
from qwen3tts_server.run import running_server
from qwen3tts_speech.link import SpeechLink
from tests.conftest import require_package
from tests.e2e.agent_parties import spoken as voice_of
from tests.e2e.far_ends import FarEnd, Samples, audiosocket_far, twilio_far
from tests.e2e.parties import Ear, phone
from tests.e2e.test_call_features import silent
from tests.e2e.test_codec_change import change
from tests.e2e.test_handed_on import hand_on
from tests.fakes import FakeClock
from tests.peers.recording_engine import RecordingEngine
from tests.softphone.far_browser import FarBrowser
from tests.softphone.plain_call import PlainCall
from tests.softphone.sound import likeness
from tests.softphone.webrtc.calls import web_call

require_package("aiortc", "pip install 'mr_qwen3tts[webrtc]'")
pytestmark = pytest.mark.network

FROM_THE_PAGE = "Somebody speaks into the microphone of the browser."
FROM_THE_PARTY = "This is the other party, who has answered the telephone."
TYPED = "These words were typed into the page."


class Scene:
    """A phone of ours with a gateway, a phone of somebody else's, and a page."""

    def __init__(
        self, ours: Phone, party: Phone, page: WebCall, far: FarBrowser, engine: RecordingEngine
    ) -> None:
        self.ours, self.party, self.page, self.far, self.engine = ours, party, page, far, engine
        self.gateway = Gateway(ours)

    async def dialled(self) -> tuple[CallBridge, PhoneCall]:
        """The page dials, and the party answers."""
        joined = await self.gateway.dial(self.page, self.party.uri)
        theirs = await anext(aiter(self.party))
        await theirs.answer()
        await self.page.answer()
        await joined.call.answered()
        return joined, theirs


@asynccontextmanager
async def scene(codec: CodecChoice = "PCMU", **settings: object) -> AsyncIterator[Scene]:
    engine = RecordingEngine()
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        phone(server.url, **settings) as ours,
        phone(server.url, **settings) as party,
        web_call(SpeechLink(server.url), codec=codec) as (page, far),
    ):
        yield Scene(ours, party, page, far, engine)


def heard_of(sentence: Samples, hz: int, heard: Samples, heard_hz: int) -> float:
    """Which share of a sentence was heard."""
    like = likeness(sentence, hz, heard, heard_hz)
    return like.found / like.segments


def came(
    page: WebCall, sentence: Samples, hz: int, heard: Samples, heard_hz: int, least: float = 0.8
) -> bool:
    """Whether a sentence was heard, ``least`` of it.

    What this machine was too busy to send in time cannot be heard: then it must be known again.
    """
    like = likeness(sentence, hz, heard, heard_hz)
    late = page.sink.skipped_slots > 5
    return like.known if late else like.found >= least * like.segments


def far_of(line: str, streams: Streams) -> AbstractAsyncContextManager[FarEnd]:
    """The far end of a stream: one that plays as sound comes, or one that keeps a queue."""
    if line == "twilio":
        return twilio_far(streams.port)
    return audiosocket_far(streams.audiosocket_port)


def rate_of(far: FarBrowser) -> int:
    return int(far.frames[0].sample_rate)


@pytest.mark.parametrize(("codec", "sip_codec"), [("opus", "PCMU"), ("PCMU", "opus")])
async def test_a_page_and_whom_it_dialled_hear_each_other_and_what_is_typed(
    codec: CodecChoice, sip_codec: str
) -> None:
    mine = await voice_of(FROM_THE_PAGE)
    theirs_says = await voice_of(FROM_THE_PARTY)
    async with scene(codec, codecs=(sip_codec,)) as at:
        joined, theirs = await at.dialled()
        ear = Ear(theirs)
        assert (joined.call.codec, at.page.codec) == (sip_codec, codec)
        assert [each.remote for each in at.gateway.calls.shown()] == [joined.call.remote_uri]
        await at.far.say(mine)
        await theirs.play(theirs_says, 8000)
        spoken = await joined.speak(TYPED).spoken()
        assert spoken.heard == TYPED
        await joined.press("47")
        assert await theirs.dtmf.collect(most=2) == "47"
        await theirs.play(np.zeros(4000, np.int16), 8000)  # what was said last is heard meanwhile
        await theirs.hangup()
        await joined.over()
        assert at.page.over
        assert await at.page.ended() == "we hung up"
        await at.far.over()
        states = [state.state async for state in joined.states()]
        party_heard = await ear.heard()
        page_heard, page_hz = at.far.heard(), rate_of(at.far)
        typed = at.engine.pcm()
    assert states[-2:] == ["up", "ended"]
    assert came(at.page, mine, 8000, party_heard, 8000)
    assert came(at.page, typed, 24_000, party_heard, 8000, 0.9)
    assert came(at.page, theirs_says, 8000, page_heard, page_hz)
    assert came(at.page, typed, 24_000, page_heard, page_hz)
    # No echo of the own voice.
    assert heard_of(mine, 8000, page_heard, page_hz) < 0.3


async def test_a_party_that_declines_is_told_with_a_remedy() -> None:
    async with scene() as at:
        joined = await at.gateway.dial(at.page, at.party.uri)
        theirs = await anext(aiter(at.party))
        theirs.ringing()
        await at.page.answer()
        told: list[State] = []
        async for state in joined.states():
            told.append(state)
            if state.state == "ringing":
                await theirs.reject(486)
        await joined.over()
        assert [state.state for state in told] == ["connecting", "ringing", "ended"]
        assert (told[-1].code, told[-1].by) == ("call_refused", "remote")
        assert "busy" in f"{told[-1].cause} {told[-1].remedy}".lower()
        assert at.page.over


async def test_a_page_that_hangs_up_while_it_rings_takes_the_call_back() -> None:
    async with scene() as at:
        joined = await at.gateway.dial(at.page, at.party.uri)
        theirs = await anext(aiter(at.party))
        await at.page.answer()
        at.page.far_end_left()
        await joined.over()
        assert "gave up" in await theirs.ended() or theirs.over
        assert not at.ours.calls


@pytest.mark.parametrize(
    ("uri", "kind", "code"),
    [
        ("sip:1900123@127.0.0.1", CallNotAllowed, "call_not_allowed"),
        ("sip:112@127.0.0.1", CallNotAllowed, "call_not_allowed"),
        ("bob", BadSip, "bad_sip"),
    ],
)
async def test_the_phones_rules_hold_for_a_page(uri: str, kind: type[Exception], code: str) -> None:
    link = SpeechLink("ws://127.0.0.1:1/v1/speech")
    async with Phone(link=link, guard=GuardSettings(denied=("1900*",))) as ours:
        page = PlainCall(FakeClock())
        with pytest.raises(kind) as told:
            await Gateway(ours).dial(page, uri)
        assert getattr(told.value, "code", "") == code
        assert getattr(told.value, "remedy", "")
        assert not ours.calls
        await page.hangup()


async def test_a_hold_by_the_party_stops_the_typed_words_and_not_the_call() -> None:
    async with scene() as at:
        joined, theirs = await at.dialled()
        ear = Ear(theirs)
        utterance = joined.speak(TYPED)
        await ear.sound(0.5)
        await theirs.hold()
        await theirs.resume()
        assert (await utterance.spoken()).heard == TYPED
        await joined.close()
        await ear.heard()
        causes = [state.cause async for state in joined.states()]
        assert "The other side has put the call on hold." in causes


async def test_the_microphone_goes_on_through_a_change_of_the_codec() -> None:
    mine = await voice_of(FROM_THE_PAGE)
    async with scene(codecs=("PCMU", "G722")) as at:
        joined, theirs = await at.dialled()
        ear = Ear(theirs)
        talking = asyncio.create_task(at.far.say(np.concatenate([mine, mine])))
        await ear.sound(1.0)
        await change(theirs, "G722")
        assert joined.call.codec == "G722"
        await talking
        await theirs.play(np.zeros(4000, np.int16), 8000)
        frames = list(ear.frames)
        await joined.close()
        await ear.heard()
    after = [frame.samples for frame in frames if frame.rate_hz == 16_000]
    assert came(at.page, mine, 8000, np.concatenate(after), 16_000, 0.7)


async def test_a_page_listens_in_and_is_heard_only_when_it_talks() -> None:
    mine = await voice_of(FROM_THE_PAGE)
    theirs_says = await voice_of(FROM_THE_PARTY)
    async with scene() as at:
        theirs = await at.party.dial(at.ours.uri)
        ours = await anext(aiter(at.ours))
        await ours.answer()
        await theirs.answered()
        ear = Ear(theirs)
        (entry,) = at.gateway.calls.shown()
        assert (entry.direction, entry.state, entry.speaking) == ("in", "up", False)
        await at.page.answer()
        guest = await at.gateway.listen(at.page, entry.id)
        talking = asyncio.create_task(at.far.say(mine))
        await theirs.play(theirs_says, 8000)
        spoken = await ours.say(TYPED)
        await talking
        muted = np.concatenate([frame.samples for frame in ear.frames])
        guest.talk(True)
        await at.far.say(mine)
        await theirs.play(np.zeros(4000, np.int16), 8000)
        guest.talk(False)
        heard = np.concatenate([frame.samples for frame in ear.frames])[len(muted) :]
        await guest.close()
        assert not ours.over
        assert (await ours.say("Goodbye.")).heard == "Goodbye."
        page_heard, page_hz = at.far.heard(), rate_of(at.far)
        typed = at.engine.pcm()[: spoken.position]
        await theirs.hangup()
        await ear.heard()
    assert came(at.page, theirs_says, 8000, page_heard, page_hz)
    assert came(at.page, typed, 24_000, page_heard, page_hz)
    assert heard_of(mine, 8000, muted, 8000) < 0.3
    assert came(at.page, mine, 8000, heard, 8000)


@pytest.mark.parametrize("line", ["audiosocket", "twilio"])
async def test_a_page_listens_to_a_stream_and_talks_in_it(line: str) -> None:
    mine = await voice_of(FROM_THE_PAGE)
    theirs_says = await voice_of(FROM_THE_PARTY)
    engine = RecordingEngine()
    async with (
        asyncio.timeout(60),
        running_server(engine, host="127.0.0.1", port=0) as server,
        Streams(server_url=server.url, kinds=(line,), insecure=True) as streams,
        far_of(line, streams) as pbx,
        web_call(SpeechLink(server.url), codec="PCMU") as (page, far),
    ):
        call = await anext(aiter(streams))
        await call.answer()
        gateway = Gateway(further=[streams])
        await page.answer()
        guest = await gateway.listen(page, gateway.calls.shown()[0].id)
        await pbx.say(theirs_says)
        with call.sent_audio() as sent:
            guest.talk(True)
            await far.say(mine)
            await pbx.say(np.zeros(4000, np.int16))
            frames = sent.take()
        assert all(frame.live for frame in frames)
        await call.hangup()
        await guest.over()
        assert page.over
        await far.over()
        page_heard, page_hz = far.heard(), rate_of(far)
    assert came(page, theirs_says, 8000, page_heard, page_hz)
    put_in = np.concatenate([frame.samples for frame in frames])
    assert came(page, mine, 8000, put_in, frames[0].rate_hz)


async def test_dialling_again_and_again_leaves_nothing_behind() -> None:
    async with scene() as at:
        before = 0
        for _ in range(4):
            async with web_call(at.page._core.voice.link, codec="PCMU") as (page, _):
                joined = await at.gateway.dial(page, at.party.uri)
                theirs = await anext(aiter(at.party))
                await theirs.answer()
                await page.answer()
                await at.page.clock.sleep_until(at.page.clock.now() + 0.2)
                await joined.close()
                await theirs.ended()
            names = sorted(task.get_name() for task in asyncio.all_tasks())
            before = before or len(names)
            assert len(names) <= before, names
        assert not at.ours.calls


async def test_a_page_is_in_the_call_that_its_party_hands_it_on_to() -> None:
    mine = await voice_of(FROM_THE_PAGE)
    async with scene(transfers="accept") as at, silent() as third:
        joined, theirs = await at.dialled()
        taken = await hand_on(theirs, third)
        async for state in joined.states():
            if state.cause == f"The call goes on with {third.uri}.":
                break
        ear = Ear(taken)
        await at.far.say(mine)
        assert (await joined.speak(TYPED).spoken()).heard == TYPED
        await joined.press("4")
        assert await taken.dtmf.collect(most=1) == "4"
        assert [call.remote_uri for call in at.ours.calls if not call.over] == [third.uri]
        await taken.play(np.zeros(4000, np.int16), 8000)
        await taken.hangup()
        await joined.over()
        assert at.page.over
        heard = await ear.heard()
        names = [state.state async for state in joined.states()]
    assert came(at.page, mine, 8000, heard, 8000)
    assert names[-2:] == ["up", "ended"]
    assert "ringing" not in names[names.index("up") :]
