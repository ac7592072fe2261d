from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from qwen3tts_agent.recognition.deepgram import DeepgramRecogniser
from qwen3tts_agent.recognition.kinds import check_recogniser, recogniser_named
from qwen3tts_agent.recognition.settings import DEEPGRAM, DeepgramSettings
from qwen3tts_agent.recognition.websocket import SocketRecognition
from qwen3tts_phone.detection.recogniser import (
    RecogniserUnavailable,
    RecognitionFailed,
    RecognitionTimeout,
    Transcript,
)
from tests.agent.recognition.deepgram_server import Deepgram, deepgram
from tests.agent.recognition.sounds import Talk, tone
from tests.fakes import FakeClock, settle

pytestmark = pytest.mark.network


@asynccontextmanager
async def call(
    there: Deepgram, *, clock: FakeClock | None = None, connected: bool = True, **settings: Any
) -> AsyncIterator[tuple[SocketRecognition, Talk, list[str]]]:
    """A recognition, somebody who speaks into it, and what was told of turns not over yet."""
    chosen = DeepgramSettings(**{"url": there.url, "api_key": "a-key", **settings})
    recogniser = DeepgramRecogniser(chosen, clock=clock)
    partial: list[str] = []
    recognition = await recogniser.open(lambda each: partial.append(each.text))
    try:
        while connected and not recognition.connections:
            await settle()
        yield recognition, Talk(recognition), partial
    finally:
        await recogniser.close()


async def test_a_turn_is_streamed_and_its_words_are_there_at_its_end() -> None:
    async with deepgram() as there, call(there, languages=("de",)) as (recognition, talk, partial):
        last = talk.turn(tone(1.0))
        recognition.pause(last)
        while "Finalize" not in there.types():
            await settle()
        while not partial or partial[-1] != "10 tenths":
            await settle()
        text = await recognition.end_turn(last)
        assert text == Transcript("10 tenths", "", 0.75)
        assert there.types() == ["Finalize"], "all was fixed at the pause"
        assert there.seconds == [pytest.approx(1.7, abs=0.03)]
    [asked] = there.asked
    assert {name: value for name, [value] in asked.items()} == {
        **{"model": "nova-3", "language": "de", "endpointing": "300", "interim_results": "true"},
        **{"encoding": "linear16", "sample_rate": "16000", "channels": "1"},
    }
    assert there.types()[-1] == "CloseStream"


async def test_only_the_sound_of_turns_is_sent_and_each_gets_its_own_words() -> None:
    async with deepgram() as there, call(there) as (recognition, talk, _):
        for seconds in (0.5, 1.0, 2.0):
            assert (await recognition.end_turn(talk.turn(tone(seconds)))).text == (
                f"{round(seconds * 10)} tenths"
            )
            talk.say(tone(1.0))  # between turns
        assert sum(there.seconds) == pytest.approx(3.5 + 3 * 0.7, abs=0.1)
        assert there.asked[0]["language"] == ["multi"]


async def test_a_turn_that_goes_on_after_a_pause_is_one() -> None:
    async with deepgram() as there, call(there) as (recognition, talk, _):
        recognition.pause(talk.turn(tone(0.5)))
        recognition.resume()
        talk.say(tone(1.0))
        text = await recognition.end_turn(talk.at)
    assert text.text == "5 tenths 10 tenths"


async def test_a_noise_is_not_in_the_next_turn() -> None:
    async with deepgram() as there, call(there) as (recognition, talk, _):
        talk.turn(tone(0.3))
        recognition.drop_turn()
        assert (await recognition.end_turn(talk.turn(tone(1.0)))).text == "10 tenths"


async def test_two_turns_may_wait() -> None:
    async with deepgram() as there, call(there) as (recognition, talk, _):
        first = recognition.end_turn(talk.turn(tone(0.5)))
        second = recognition.end_turn(talk.turn(tone(1.0)))
        assert [(await each).text for each in (first, second)] == ["5 tenths", "10 tenths"]


async def test_a_finalize_that_is_not_answered_costs_a_moment_and_no_word() -> None:
    async with deepgram() as there:
        there.mute_finalize = True
        async with call(there, settle_s=0.05) as (recognition, talk, _):
            text = await recognition.end_turn(talk.turn(tone(1.0)))
    # The last results that were not fixed: there are some for each half second.
    assert text.text == "10 tenths"


async def test_a_turn_without_any_results_fails_in_time() -> None:
    async with deepgram() as there:
        there.mute_finalize = True
        times: dict[str, Any] = {"settle_s": 0.02, "answer_timeout_s": 0.05}
        async with call(there, **times) as (recognition, talk, _):
            last = talk.turn(tone(0.1), known_after_s=0.05, pause_s=0.05)
            with pytest.raises(RecognitionTimeout):
                await recognition.end_turn(last)


async def test_a_connection_that_breaks_is_made_again_and_the_turn_sent_again() -> None:
    clock = FakeClock()
    async with deepgram() as there:
        there.break_after = 1
        async with call(there, clock=clock) as (recognition, talk, _):
            text = asyncio.ensure_future(recognition.end_turn(talk.turn(tone(1.0))))
            while recognition.failure is None:
                await settle()
            while not text.done():
                await clock.advance(0.5)
            assert (await text).text == "10 tenths"
            assert recognition.connections == 2


async def test_words_spoken_while_there_is_no_connection_are_sent_when_there_is() -> None:
    async with deepgram() as there, call(there, connected=False) as (recognition, talk, _):
        assert recognition.connections == 0
        assert (await recognition.end_turn(talk.turn(tone(1.0)))).text == "10 tenths"


async def test_the_connection_is_kept_between_turns() -> None:
    clock = FakeClock()
    async with deepgram() as there, call(there, clock=clock):
        for number in (1, 2):
            while not any(at - clock.now() == 4.0 for at, _, _ in clock._sleepers):
                await settle()
            await clock.advance(4.0)
            while there.types().count("KeepAlive") < number:
                await settle()


@pytest.mark.parametrize(
    ("message", "match"),
    [
        ({"type": "Error", "description": "no room", "variant": "x"}, "failed: no room"),
        ({"type": "Error"}, "does not say why"),
        (b"\x00", "binary message"),
        ("[1]", "JSON without a type"),
        ({"type": "Results", "start": 0, "duration": 1, "channel": {}}, "no alternatives"),
    ],
)
async def test_what_it_should_not_say_makes_another_connection(
    message: dict[str, Any] | str | bytes, match: str
) -> None:
    clock = FakeClock()
    async with deepgram() as there:
        there.before = [message]
        async with call(there, clock=clock, connected=False) as (recognition, talk, _):
            while recognition.failure is None:
                await settle()
            assert match in str(recognition.failure)
            there.before = [{"type": "Metadata"}, {"type": "SpeechStarted", "timestamp": 1.0}]
            text = asyncio.ensure_future(recognition.end_turn(talk.turn(tone(1.0))))
            while not text.done():
                await clock.advance(0.5)
            assert (await text).text == "10 tenths"


@pytest.mark.parametrize(
    ("refuses", "key", "kind", "match", "remedy"),
    [
        (None, "another", RecogniserUnavailable, "asks for a key", "QWEN3TTS_STT_KEY"),
        (
            (402, "ASR_PAYMENT"),
            "a-key",
            RecogniserUnavailable,
            "requires payment .402.: ASR_PAYMENT",
            "",
        ),
        (
            (400, "No such model"),
            *("a-key", RecogniserUnavailable, "refused the request .400.: No such model", "model"),
        ),
        ((429, "Too many"), "a-key", RecognitionFailed, "overloaded", "later"),
    ],
)
async def test_a_check_says_what_is_wrong(
    refuses: tuple[int, str] | None, key: str, kind: type[Exception], match: str, remedy: str
) -> None:
    async with deepgram() as there:
        there.refuses = refuses
        with pytest.raises(kind, match=match) as caught:
            await check_recogniser(f"deepgram:{there.url}", api_key=key)
    assert remedy in getattr(caught.value, "remedy", "")


async def test_a_check_hears_results() -> None:
    async with deepgram() as there:
        report = await check_recogniser(f"deepgram:{there.url}?model=nova-2", api_key="a-key")
        assert there.asked[0]["model"] == ["nova-2"]
        assert there.types() == ["Finalize", "CloseStream"]
    assert (report.kind, report.address) == ("deepgram", there.url)
    assert report.wait_s is not None


async def test_deepgram_without_a_key_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DEEPGRAM_API_KEY", raising=False)
    with pytest.raises(RecogniserUnavailable, match="there is no key for") as caught:
        await check_recogniser("deepgram")
    assert "DEEPGRAM_API_KEY" in caught.value.remedy


async def test_keys_go_to_their_own_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPGRAM_API_KEY", "for-deepgram-alone")
    monkeypatch.setenv("QWEN3TTS_STT_KEY", "for-others")
    assert DeepgramSettings().headers() == {"Authorization": "Token for-deepgram-alone"}
    other = DeepgramSettings("wss://speech.example.org/v1/listen")
    assert other.headers() == {"Authorization": "Token for-others"}


async def test_names() -> None:
    plain = recogniser_named("deepgram", languages=("en",))
    model = recogniser_named("Deepgram:nova-2-phonecall")
    assert isinstance(plain, DeepgramRecogniser)
    assert isinstance(model, DeepgramRecogniser)
    assert plain.settings == DeepgramSettings(DEEPGRAM, languages=("en",))
    assert model.settings.model == "nova-2-phonecall"
    several = DeepgramSettings(f"{DEEPGRAM}?keyterm=Wien&keyterm=Graz&model=x&smart_format=true")
    assert several.address.count("keyterm=") == 2
    assert several.address.count("model=") == 1
    assert several.shown == DEEPGRAM
