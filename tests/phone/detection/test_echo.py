"""Our own voice that comes back is not the caller's; the caller who talks over it is."""

from __future__ import annotations

import numpy as np
import pytest

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.echo import EchoGuard
from qwen3tts_phone.detection.echo_canceller import SampleTimeline
from qwen3tts_phone.detection.events import CallerCutIn, ListenEvent, OnsetHeard
from qwen3tts_phone.detection.settings import ListenSettings
from tests.phone.detection.spoken import (
    AGENT,
    CALLER,
    Samples,
    echo_of,
    quiet,
    room_echo_of,
    spoken,
)


def mixed(*sounds: Samples) -> Samples:
    length = max(map(len, sounds))
    total = np.zeros(length, np.int32)
    for sound in sounds:
        total[: len(sound)] += sound
    return np.clip(total, -32768, 32767).astype(np.int16)


def late(sound: Samples, seconds: float) -> Samples:
    return np.concatenate((np.zeros(round(seconds * 8000), np.int16), sound))


def talk(sent: Samples, heard: Samples, *, guard: bool = True) -> list[ListenEvent]:
    """The agent says ``sent`` from time 100 on, which is also when ``heard`` begins."""
    core = SpeechDetectionCore(ListenSettings(echo_guard=guard), 100.0)
    events: list[ListenEvent] = []
    for number in range(len(heard) // 160):
        at = 100.02 + number * 0.02
        ours = sent[number * 160 : (number + 1) * 160]
        frames = [SentFrame(ours, 8000, at - 0.02)] if len(ours) == 160 else []
        core.agent_speaking(len(ours) == 160, at)
        frame = HeardFrame(heard[number * 160 : (number + 1) * 160], at, False, 8000, 160 * number)
        events += core.push(frame, frames)
    return events


def test_samples_lie_where_they_were_put_and_between_them_is_silence() -> None:
    line = SampleTimeline(1000)
    line.put(np.full(10, 1, np.float32), 50)
    line.put(np.full(10, 2, np.float32), 80)
    assert line.get(45, 95).tolist() == [0] * 5 + [1] * 10 + [0] * 20 + [2] * 10 + [0] * 5
    assert line.end == 90


def test_a_line_that_goes_on_for_long_keeps_its_newest_samples() -> None:
    line = SampleTimeline(1000)
    for number in range(100):
        line.put(np.full(160, number, np.float32), 160 * number)
    assert line.get(15_000, 16_000).tolist() == [n // 160 for n in range(15_000, 16_000)]
    assert not line.get(0, 100).any()
    line.put(np.full(5, 7, np.float32), 10**9)  # another clock
    assert line.get(10**9 - 2, 10**9 + 5).tolist() == [0, 0, 7, 7, 7, 7, 7]
    assert not line.get(15_000, 15_100).any()


@pytest.mark.parametrize("down_db", [20.0, 30.0])
@pytest.mark.parametrize("delay_ms", [0, 60, 180, 500])
def test_an_echo_never_silences_the_agent(down_db: float, delay_ms: int) -> None:
    sent = spoken(AGENT)
    echo = echo_of(sent, down_db, delay_ms * 8)
    assert talk(sent, mixed(echo, quiet(len(sent) / 8000))) == []


@pytest.mark.parametrize("down_db", [6.0, 12.0, 20.0])
@pytest.mark.parametrize("delay_ms", [0, 180, 400])
def test_an_echo_from_a_room_never_silences_the_agent(down_db: float, delay_ms: int) -> None:
    sent = spoken(AGENT)
    echo = room_echo_of(sent, down_db, delay_ms * 8)
    events = talk(sent, mixed(echo, quiet(len(sent) / 8000)))
    assert not any(isinstance(event, CallerCutIn) for event in events)


@pytest.mark.parametrize("caller_dbfs", [-20.0, -26.0, -31.0])
@pytest.mark.parametrize("room", [False, True])
def test_a_caller_as_faint_as_the_echo_at_12_db_silences_the_agent(
    caller_dbfs: float, room: bool
) -> None:
    sent = spoken(AGENT)
    caller = late(spoken(CALLER, "en-us+m3", caller_dbfs), 1.6)
    echo = (room_echo_of if room else echo_of)(sent, 12.0, 480)
    heard = mixed(echo, caller, quiet(len(sent) / 8000))
    cut_in = next(event for event in talk(sent, heard) if isinstance(event, CallerCutIn))
    assert 101.6 < cut_in.at < 101.85


@pytest.mark.parametrize("size", [37, 80, 240, 480])
def test_frames_of_any_length_are_judged(size: int) -> None:
    sent = spoken(AGENT)
    caller = late(spoken(CALLER, "en-us+m3", -20.0), 1.6)
    heard = mixed(room_echo_of(sent, 12.0, 480), caller, quiet(len(sent) / 8000))
    core = SpeechDetectionCore(ListenSettings(), 100.0)
    events: list[ListenEvent] = []
    for start in range(0, 20_000, size):
        at = 100 + (start + size) / 8000
        core.agent_speaking(True, at)
        ours = SentFrame(sent[start : start + size], 8000, at - size / 8000)
        frame = HeardFrame(heard[start : start + size], at, False, 8000, start)
        events += core.push(frame, [ours])
    cut_in = next(event for event in events if isinstance(event, CallerCutIn))
    assert 101.6 < cut_in.at < 101.95


@pytest.mark.parametrize("slip", [160, 480, 1600])
def test_a_slip_of_the_delay_in_a_room_is_followed_within_a_fifth_of_a_second(slip: int) -> None:
    sent = np.concatenate((spoken(AGENT), spoken(AGENT)))
    half = len(sent) // 320 * 160
    before, after = (room_echo_of(sent, 12.0, 800 + moved) for moved in (0, slip))
    heard = mixed(np.concatenate((before[:half], after[half:])), quiet(len(sent) / 8000))
    guard = EchoGuard()
    left = []
    for start in range(0, len(sent), 160):
        at = 100 + (start + 160) / 8000
        guard.sent(SentFrame(sent[start : start + 160], 8000, at - 0.02))
        left.append(guard.push(heard[start : start + 160], at))
    rest = np.concatenate(left).astype(float)
    found = half + 800 + slip + 1600
    assert np.sum(rest[found : found + 8000] ** 2) < 0.01 * np.sum(
        heard[found : found + 8000].astype(float) ** 2
    )


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("slip", [160, -480])
@pytest.mark.parametrize("room", [False, True])
def test_a_slip_of_the_delay_at_12_db_does_not_silence_the_agent(
    room: bool, slip: int, seed: int
) -> None:
    sent = np.concatenate((spoken(AGENT), spoken(AGENT)))
    path = room_echo_of if room else echo_of
    before, after = (path(sent, 12.0, 1440 + moved, seed) for moved in (0, slip))
    loudest = np.convolve(np.square(after.astype(float)), np.ones(1600))[24_000:40_000]
    middle = (24_000 + int(np.argmax(loudest)) - 800) // 160 * 160  # of a loud word
    heard = mixed(np.concatenate((before[:middle], after[middle:])), quiet(len(sent) / 8000))
    events = talk(sent, heard)
    assert not any(isinstance(event, CallerCutIn) for event in events)


def test_a_caller_who_talks_right_after_a_slip_silences_the_agent() -> None:
    sent = np.concatenate((spoken(AGENT), spoken(AGENT)))
    slip_at = 160 * 160
    echo = np.concatenate(
        (room_echo_of(sent, 12.0, 800)[:slip_at], room_echo_of(sent, 12.0, 960)[slip_at:])
    )
    caller = late(spoken(CALLER, "en-us+m3", -26.0), slip_at / 8000 + 0.1)
    events = talk(sent, mixed(echo, caller, quiet(len(sent) / 8000)))
    cut_in = next(event for event in events if isinstance(event, CallerCutIn))
    assert slip_at / 8000 + 0.1 < cut_in.at - 100.0 < slip_at / 8000 + 0.4


def test_without_the_guard_it_would() -> None:
    sent = spoken(AGENT)
    events = talk(sent, echo_of(sent, 20.0, 800), guard=False)
    assert any(isinstance(event, CallerCutIn) for event in events)


@pytest.mark.parametrize("caller_dbfs", [-15.0, -22.0, -28.0])
@pytest.mark.parametrize("down_db", [20.0, 30.0])
def test_a_caller_who_talks_over_the_echo_silences_the_agent(
    caller_dbfs: float, down_db: float
) -> None:
    sent = spoken(AGENT)
    caller = late(spoken(CALLER, "en-us+m3", caller_dbfs), 1.2)
    heard = mixed(echo_of(sent, down_db, 1200), caller, quiet(len(sent) / 8000))
    cut_in = next(event for event in talk(sent, heard) if isinstance(event, CallerCutIn))
    assert 101.2 < cut_in.at < 101.8


def test_a_caller_who_talks_where_nothing_echoes_silences_the_agent() -> None:
    sent = spoken(AGENT)
    heard = mixed(late(spoken(CALLER, "en-us+m3", -28.0), 1.0), quiet(len(sent) / 8000))
    cut_in = next(event for event in talk(sent, heard) if isinstance(event, CallerCutIn))
    assert 101.0 < cut_in.at < 101.6


def test_a_path_that_changes_in_mid_call_does_not_silence_the_agent() -> None:
    sent = spoken(AGENT)
    half = len(sent) // 320 * 160
    heard = np.concatenate((echo_of(sent, 20.0, 800)[:half], echo_of(sent, 20.0, 1300, 2)[half:]))
    events = talk(sent, mixed(heard, quiet(len(sent) / 8000)))
    assert not any(isinstance(event, CallerCutIn) for event in events)


@pytest.mark.parametrize(
    ("before", "after", "share"), [(2000, 160, 0.65), (3840, 160, 0.4), (160, 480, 0.6)]
)
def test_a_change_of_the_codec_and_with_it_of_the_delay_does_not_silence_the_agent(
    before: int, after: int, share: float
) -> None:
    sent = np.concatenate((spoken(AGENT), spoken(AGENT)))
    change = round(len(sent) * share) // 160
    echo = np.concatenate(
        (
            echo_of(sent, 20.0, before)[: 160 * change],
            echo_of(sent, 20.0, after, 2)[160 * change :],
        )
    )
    alone = mixed(echo, quiet(len(sent) / 8000))
    assert not _cut_ins(sent, alone, change)
    # Who really speaks right after it is heard all the same.
    caller = late(spoken(CALLER, "en-us+m3", -20.0), change * 0.02 + 0.1)
    first = _cut_ins(sent, mixed(alone, caller)[: len(sent)], change)[0]
    assert change * 0.02 + 0.1 < first.at - 100.0 < change * 0.02 + 0.7


def _cut_ins(sent: Samples, heard: Samples, change: int) -> list[CallerCutIn]:
    """Of a call on which we send at 8 kHz, and at 16 kHz from that frame on."""
    wide = Resampler(8000, 16000).push(sent)
    core = SpeechDetectionCore(ListenSettings(), 100.0)
    events: list[ListenEvent] = []
    for number in range(len(heard) // 160):
        at = 100.02 + number * 0.02
        core.agent_speaking(True, at)
        if number < change:
            ours = SentFrame(sent[number * 160 : (number + 1) * 160], 8000, at - 0.02)
        else:
            ours = SentFrame(wide[number * 320 : (number + 1) * 320], 16000, at - 0.02)
        frame = HeardFrame(heard[number * 160 : (number + 1) * 160], at, False, 8000, 160 * number)
        events += core.push(frame, [ours])
    return [event for event in events if isinstance(event, CallerCutIn)]


def test_while_nothing_is_sent_what_is_heard_passes_untouched() -> None:
    guard = EchoGuard()
    sound = spoken(CALLER)[:160]
    assert guard.push(sound, 5.0) is sound
    assert not guard.active
    assert not guard.may_be_ours(0.032)


def test_some_time_after_the_last_word_nothing_can_be_an_echo_any_more() -> None:
    guard = EchoGuard()
    guard.sent(SentFrame(spoken(AGENT)[:160], 8000, 5.0))
    guard.push(np.zeros(160, np.int16), 5.02)
    assert guard.active
    guard.push(np.zeros(160, np.int16), 6.5)
    assert not guard.active


def test_what_we_send_in_another_rate_is_known_as_well() -> None:
    sent = spoken(AGENT)
    wide = Resampler(8000, 16000).push(sent)
    heard = mixed(echo_of(sent, 20.0, 800), quiet(len(sent) / 8000))
    core = SpeechDetectionCore(ListenSettings(), 100.0)
    events: list[ListenEvent] = []
    for number in range(len(heard) // 160):
        at = 100.02 + number * 0.02
        core.agent_speaking(True, at)
        ours = SentFrame(wide[number * 320 : (number + 1) * 320], 16000, at - 0.02)
        frame = HeardFrame(heard[number * 160 : (number + 1) * 160], at, False, 8000, 160 * number)
        events += core.push(frame, [ours])
    assert not any(isinstance(event, OnsetHeard) for event in events)
