from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_codecs.g711 import PCMA
from qwen3tts_codecs.g722 import G722
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed
from qwen3tts_phone.call.events import MediaSilent
from qwen3tts_phone.errors import CallError, NotPossible, WrongState
from qwen3tts_phone.streams.call import MAX_ID_CHARS
from qwen3tts_phone.streams.carriers.adapter import Handshake, StreamKind
from qwen3tts_phone.streams.carriers.asterisk import ChanWebSocketAdapter
from qwen3tts_phone.streams.carriers.audiosocket import AudioSocketAdapter
from qwen3tts_phone.streams.carriers.json_media import JsonMediaAdapter
from qwen3tts_phone.streams.carriers.twilio import TWILIO
from tests.fakes import settle
from tests.streams.calls import LOUD, streamed
from tests.streams.far_end import PlainAdapter


async def test_a_call_has_the_facts_that_its_start_tells() -> None:
    async with streamed() as line:
        assert not line.call.started.is_set()
        await line.comes("start abc")
        call = line.call
        assert call.started.is_set()
        assert (call.id, call.line, call.direction) == ("abc", "plain", "in")
        assert (call.remote_uri, call.dialled_uri) == ("+15550001", "+15550002")
        assert call.codec == "PCMU"


async def test_nothing_is_sent_and_nothing_can_be_said_before_the_answer() -> None:
    async with streamed() as line:
        await line.comes("start abc")
        with pytest.raises(WrongState):
            line.call.speak("Hello.")
        assert line.wire.sent == []


async def test_the_answer_is_sent_once() -> None:
    async with streamed() as line:
        await line.answered()
        await line.call.answer()
        assert line.wire.words == ["answer"]
        assert "CallAnswered" in line.kinds


async def test_what_is_said_goes_out_and_comes_back_as_heard() -> None:
    async with streamed() as line:
        await line.answered()
        saying = asyncio.ensure_future(line.call.say("Good morning."))
        await line.says(400)
        await line.clock.advance(5)
        spoken = await saying
        assert spoken.position == 24 * 400
        assert not spoken.interrupted
        assert len(line.wire.sounds) >= 20


async def test_an_interruption_clears_the_far_end_at_once() -> None:
    async with streamed() as line:
        await line.answered()
        utterance = line.call.speak("A long story.")
        await line.says(5000)
        await line.clock.advance(1)
        before = len(line.wire.sounds)
        line.call.interrupt()
        assert line.wire.words[-1] == "clear"
        await line.clock.advance(1)
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert 24 * 800 <= spoken.position <= 24 * 1100
        assert len(line.wire.sounds) == before


async def test_late_sound_of_an_interrupted_utterance_is_never_sent() -> None:
    async with streamed() as line:
        await line.answered()
        line.call.speak("A long story.")
        await settle(20)
        context = line.client.contexts[0]
        context.start()
        context.sound(1000)
        await settle(20)
        await line.clock.advance(0.3)
        line.call.interrupt()
        before = len(line.wire.sounds)
        context.sound(1000)
        context.done()
        await line.clock.advance(2)
        assert len(line.wire.sounds) == before


async def test_the_caller_is_heard_by_all_who_listen() -> None:
    async with streamed() as line:
        await line.answered()
        heard = []

        async def listen(frames: AsyncIterator[object]) -> None:
            async for frame in frames:
                heard.append(frame)

        listening = [asyncio.create_task(listen(line.call.audio())) for _ in range(2)]
        await settle()
        await line.comes(LOUD, LOUD)
        assert len(heard) == 4
        assert line.kinds.count("MediaBegan") == 1
        line.wire.breaks()
        await line.over()
        await asyncio.gather(*listening)


async def test_heard_frames_lie_one_behind_the_other_and_holes_are_concealed() -> None:
    async with streamed() as line:
        await line.answered()
        frames: list[HeardFrame] = []
        line.call._core.inbound.tap(frames.append)
        await line.comes(LOUD, "lost 20", LOUD)
        assert [each.timestamp for each in frames] == [0, 160, 320]
        assert [each.concealed for each in frames] == [False, True, False]


async def test_keys_are_pressed_both_ways() -> None:
    async with streamed() as line:
        await line.answered()
        await line.comes("key 4", "key 2", "key #")
        assert [each.digit for each in line.events if isinstance(each, KeyPressed)] == [
            "4",
            "2",
            "#",
        ]
        assert await line.call.dtmf.collect(most=4) == "42"
        await line.call.send_dtmf("12")
        assert line.wire.words[-1] == "keys 12"
        assert line.call.facts.keys_out == "12"


async def test_hanging_up_lets_what_was_said_out_and_tells_the_far_end() -> None:
    async with streamed() as line:
        await line.answered()
        hanging = asyncio.ensure_future(line.call.hangup())
        await line.over()
        await hanging
        assert line.wire.words[-1] == "hang up"
        assert line.wire.closed_with == 1000
        assert line.record["end"]["by"] == "local"
        assert line.record["line"] == "plain"


async def test_hanging_up_after_the_last_word_does_not_cut_it_off_by_a_clear() -> None:
    async with streamed() as line:
        await line.answered()
        saying = asyncio.ensure_future(line.call.say("Good bye."))
        await line.says(400)
        while not saying.done():
            await line.clock.advance(0.02)
        said_at = line.clock.now()
        hanging = asyncio.ensure_future(line.call.hangup())
        await line.over()
        await hanging
        assert "clear" not in line.wire.words
        at = next(at for at, message in line.wire.sent if message == "hang up")
        assert at >= said_at + 0.17  # in steps of 20 ms


async def test_the_far_ends_stop_ends_the_call() -> None:
    async with streamed() as line:
        await line.answered()
        await line.comes("stop it is over")
        assert "it is over" in await line.over()
        assert line.record["end"]["by"] == "remote"
        assert line.kinds[-1] == "CallEnded"
        with pytest.raises(WrongState):
            line.call.speak("Hello?")


async def test_what_is_being_said_when_the_stream_ends_is_settled() -> None:
    async with streamed() as line:
        await line.answered()
        utterance = line.call.speak("A long story.")
        await line.says(5000)
        await line.clock.advance(1)
        await line.comes("stop")
        await line.over()
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert spoken.position < 24 * 1300


async def test_what_goes_on_while_the_connection_is_being_closed_is_heard_by_nobody() -> None:
    async with streamed() as line:
        await line.answered()
        utterance = line.call.speak("A long story.")
        await line.says(5000)
        await line.clock.advance(1)
        line.wire.closing.clear()  # this far end takes its time
        await line.comes("stop")
        sent = len(line.wire.sounds)
        with pytest.raises(WrongState):
            line.call.speak("Hello?")
        await line.clock.advance(4)
        line.wire.closing.set()
        await line.over()
        spoken = await utterance.spoken()
        assert spoken.interrupted
        assert spoken.position < 24 * 1300
        assert len(line.wire.sounds) == sent
        assert "clear" not in line.wire.words  # it has left


async def test_after_our_hang_up_nothing_is_said_while_the_carrier_is_asked() -> None:
    asked = asyncio.Event()

    async def hang_up(call_id: str) -> None:
        await asked.wait()

    adapter = PlainAdapter()
    adapter.has_hang_up = False
    kind = StreamKind("plain", lambda handshake: adapter, hang_up=hang_up)
    async with streamed(adapter, kind=kind) as line:
        await line.answered()
        line.call.speak("A long story.")
        await line.says(5000)
        await line.clock.advance(1)
        hanging = asyncio.ensure_future(line.call.hangup())
        await settle(20)
        with pytest.raises(WrongState):
            line.call.speak("One more thing.")
        asked.set()
        await line.over()
        await hanging


async def test_a_stream_that_ends_without_a_stop_says_so_in_its_record() -> None:
    async with streamed() as line:
        await line.answered()
        line.wire.breaks()
        await line.over()
        assert line.record["end"]["error"] == "stream_lost"
        assert "stream_lost" in line.record["findings"]
        assert "stop" in line.record["diagnosis"]


async def test_a_format_without_a_stop_ends_by_closing() -> None:
    adapter = PlainAdapter()
    adapter.ends_by_closing = True
    async with streamed(adapter) as line:
        await line.answered()
        line.wire.breaks()
        await line.over()
        assert line.record["end"] == line.record["end"] | {"by": "remote", "error": None}


async def test_a_connection_that_breaks_is_an_error() -> None:
    async with streamed() as line:
        await line.answered()
        line.wire.breaks("the far end answered no ping")
        assert "no ping" in await line.over()
        assert line.record["end"]["error"] == "stream_lost"


async def test_a_far_end_that_takes_nothing_any_more_is_given_up() -> None:
    async with streamed(vanished_s=5) as line:
        await line.answered()
        utterance = line.call.speak("A long story.")
        await line.says(3000)
        line.wire.taking.clear()
        for _ in range(60):
            await line.clock.advance(0.1)
            await line.comes(LOUD)
        assert "does not accept data" in await line.over()
        assert (await utterance.spoken()).interrupted
        assert line.record["end"]["by"] == "timeout"


async def test_what_is_odd_is_counted_and_the_call_goes_on() -> None:
    async with streamed() as line:
        await line.comes(LOUD, "start abc", "start def", "nonsense", "nonsense")
        await line.call.answer()
        assert line.call.id == "abc"
        assert line.call.facts.odd == {
            "sound before the start": 1,
            "a second start": 1,
            "an unknown event": 2,
        }
        line.wire.comes("stop")
        await line.over()
        assert "odd_messages" in line.record["findings"]


async def test_a_far_end_that_never_starts_is_hung_up_on() -> None:
    async with streamed(start_s=3.0) as line:
        await line.clock.advance(4)
        assert "never identified the call" in await line.over()
        assert line.wire.words == ["hang up"]
        assert line.call.started.is_set()
        assert line.record["end"]["by"] == "timeout"


async def test_a_far_end_that_sends_nothing_any_more_is_told_of_and_then_given_up() -> None:
    async with streamed(media_silent_s=5.0, vanished_s=8.0) as line:
        await line.answered()
        await line.comes(LOUD)
        await line.clock.advance(6)
        silent = [each for each in line.events if isinstance(each, MediaSilent)]
        assert [each.ever for each in silent] == [True]
        await line.clock.advance(4)
        assert "vanished" in await line.over()
        assert line.record["end"]["by"] == "timeout"


async def test_a_call_whose_media_never_came_says_so() -> None:
    async with streamed() as line:
        await line.answered()
        await line.clock.advance(3)
        await line.comes("stop")
        await line.over()
        assert "no_stream_media" in line.record["findings"]


async def test_messages_keep_a_call_alive_that_has_no_sound() -> None:
    async with streamed(vanished_s=8.0) as line:
        await line.answered()
        for _ in range(4):
            await line.clock.advance(4)
            await line.comes("key 1")
        assert not line.call.over


async def test_a_transfer_goes_by_the_carriers_interface() -> None:
    asked: list[tuple[str, str]] = []

    async def transfer(call_id: str, target: str) -> None:
        asked.append((call_id, target))

    kind = StreamKind("plain", lambda handshake: PlainAdapter(), transfer=transfer)
    async with streamed(kind=kind) as line:
        await line.answered()
        moving = asyncio.ensure_future(line.call.transfer("+15559999"))
        await line.over()
        await moving
        assert asked == [("call-7", "+15559999")]
        assert line.record["transferred"] is True


async def test_what_the_line_cannot_do_is_said_with_its_name() -> None:
    async with streamed() as line:
        await line.answered()
        for ask in (line.call.transfer("+1"), line.call.hold(), line.call.resume()):
            with pytest.raises(NotPossible, match="plain"):
                await ask


async def test_where_the_format_has_no_hang_up_the_carrier_is_asked() -> None:
    asked: list[str] = []

    async def hang_up(call_id: str) -> None:
        asked.append(call_id)
        raise CallError("It said no.")

    adapter = PlainAdapter()
    adapter.has_hang_up = False
    kind = StreamKind("plain", lambda handshake: adapter, hang_up=hang_up)
    async with streamed(adapter, kind=kind) as line:
        await line.answered()
        hanging = asyncio.ensure_future(line.call.hangup())
        await line.over()
        await hanging
        assert asked == ["call-7"]
        assert line.wire.closed_with == 1000


async def test_a_refused_call_is_ended() -> None:
    async with streamed() as line:
        await line.comes("start abc")
        await line.call.reject(603)
        await line.over()
        assert line.wire.words == ["hang up"]
        assert line.record["end"]["status"] == 603


async def test_an_answered_call_is_not_refused_and_goes_on() -> None:
    async with streamed() as line:
        await line.answered()
        with pytest.raises(WrongState, match="cannot be refused"):
            await line.call.reject()
        assert not line.call.over


async def test_both_sides_are_recorded_where_they_were_heard(tmp_path: Path) -> None:
    path = tmp_path / "call.wav"
    async with streamed(record_path=path) as line:
        await line.answered()
        line.call.speak("Tone.")
        await line.says(1000)
        for _ in range(50):
            await line.comes(LOUD)
            await line.clock.advance(0.02)
        await line.clock.advance(1)
        await line.comes("stop")
        await line.over()
        assert line.record["recording"] == [str(path)]
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getframerate()) == (2, 8000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    caller, agent = np.abs(samples[:, 0]), np.abs(samples[:, 1])
    assert 0.8 < np.count_nonzero(caller > 1000) / 8000 < 1.2
    assert 0.9 < np.count_nonzero(agent > 500) / 8000 < 1.1


async def test_a_far_end_of_ours_hears_silence_from_the_answer_on() -> None:
    async with streamed(PlainAdapter(PCMA, ours=True)) as line:
        await line.comes("start abc")
        await line.clock.advance(0.5)
        assert line.wire.sounds == []
        await line.call.answer()
        await line.clock.advance(0.5)
        assert len(line.wire.sounds) == pytest.approx(26, abs=1)
        assert line.call.codec == "PCMA"


async def test_a_format_with_memory_is_decoded_as_one_stream() -> None:
    pytest.importorskip("av")
    async with streamed(PlainAdapter(G722)) as line:
        await line.answered()
        frames: list[HeardFrame] = []
        line.call._core.inbound.tap(frames.append)
        await line.comes(*[G722.silent_frame(20)] * 3)
        assert [each.rate_hz for each in frames] == [16_000] * 3


def test_a_handshake_does_not_show_what_may_be_a_key() -> None:
    handshake = Handshake(query="token=secret", headers={"authorization": "secret"})
    assert "secret" not in repr(handshake)


async def test_a_channel_of_opus_is_timed_here_frame_by_frame() -> None:
    pytest.importorskip("av")
    async with streamed(ChanWebSocketAdapter()) as line:
        await line.comes('{"event": "MEDIA_START", "channel_id": "1.2", "format": "opus"}')
        await line.call.answer()
        await line.clock.advance(0.5)
        assert line.call.codec == "opus"
        times = [round(at - line.wire.sounds[0][0], 3) for at, _ in line.wire.sounds]
        assert times == [round(n * 0.02, 3) for n in range(len(times))]
        assert len(times) > 20


async def test_asterisk_that_asks_us_to_wait_is_sent_nothing_until_it_asks_again() -> None:
    async with streamed(ChanWebSocketAdapter()) as line:
        await line.comes("MEDIA_START channel_id:1.2 format:slin24 optimal_frame_size:960 ptime:20")
        await line.call.answer()
        line.call.speak("A long story.")
        await line.says(4000)
        await line.clock.advance(0.5)
        await line.comes("MEDIA_XOFF")
        await line.clock.advance(0.1)
        before = len(line.wire.sounds)
        await line.clock.advance(1)
        assert len(line.wire.sounds) == before
        await line.comes("MEDIA_XON")
        await line.clock.advance(1)
        assert len(line.wire.sounds) > before + 30


async def test_each_sound_of_one_read_is_heard_at_its_own_rate() -> None:
    async with streamed(AudioSocketAdapter()) as line:
        frames: list[HeardFrame] = []
        line.call._core.inbound.tap(frames.append)
        call_id = b"\x01\x00\x10" + bytes(16)
        await line.comes(
            call_id
            + (b"\x10\x01\x40" + bytes(320))
            + (b"\x13\x03\xc0" + bytes(960))
            + (b"\x10\x01\x40" + bytes(320))
        )
        heard = [(each.rate_hz, len(each.samples)) for each in frames]
        assert heard == [(8000, 160), (24_000, 480), (8000, 160)]


async def test_every_odd_message_is_counted_and_no_kind_hides_another() -> None:
    async with streamed(JsonMediaAdapter(TWILIO)) as line:
        await line.comes(*["nonsense"] * 500, '{"event":"media","media":{"payload":"////"}}')
        assert line.call.facts.odd == {"no JSON object": 500, "media before start": 1}


async def test_a_key_before_the_start_is_noted() -> None:
    async with streamed() as line:
        await line.comes("key 5")
        assert line.call.facts.odd == {"a key before the start": 1}


async def test_of_a_call_that_never_began_the_carrier_is_asked_nothing() -> None:
    asked: list[str] = []

    async def hang_up(call_id: str) -> None:
        asked.append(call_id)

    adapter = PlainAdapter()
    adapter.has_hang_up = False
    kind = StreamKind("plain", lambda handshake: adapter, hang_up=hang_up)
    async with streamed(adapter, kind=kind) as line:
        line.wire.breaks()
        await line.over()
    assert asked == []


async def test_a_call_id_that_is_too_long_for_a_log_line_is_cut_and_noted() -> None:
    async with streamed() as line:
        await line.comes("start " + "x" * 100_000)
        assert line.call.id == "x" * MAX_ID_CHARS
        assert line.call.facts.odd == {"a call id that is too long": 1}
