"""The adaptive jitter buffer and its estimate of the delay."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.playout import DelayEstimator, Playout, PlayoutSettings
from tests.phone.voices import Samples, hiss, rms, step, tone, voice

START = 100.0


def frames(
    pcm: Samples,
    lateness: list[float] | None = None,
    *,
    rate: int = 8000,
    clock: int = 8000,
    ppm: float = 0.0,
    first: int = 0,
) -> list[HeardFrame]:
    """20 ms frames of ``pcm`` in order, each so much after its time on a clock ``ppm`` slow."""
    count, out, last = rate // 50, [], 0.0
    for number in range(len(pcm) // count):
        late = lateness[number] if lateness else 0.0
        last = max(last, START + (first + number) * 0.02 * (1 + ppm * 1e-6) + late)
        samples = pcm[number * count : (number + 1) * count]
        stamp = (first + number) * clock // 50
        out.append(HeardFrame(samples, last, False, rate, stamp, clock))
    return out


def play(playout: Playout, sent: list[HeardFrame], until: float | None = None) -> list[HeardFrame]:
    """Hand each frame over when it arrives, and look for what is due every 20 ms."""
    played: list[HeardFrame] = []
    end = until if until is not None else sent[-1].at + 0.5
    waiting = list(sent)
    for tick in range(round((end - START) * 50) + 1):
        now = START + tick * 0.02
        while waiting and waiting[0].at <= now:
            playout.push(waiting.pop(0))
        played += playout.due(now)
    return played


def sound(played: list[HeardFrame]) -> Samples:
    return np.concatenate([frame.samples for frame in played])


def place(pcm: Samples, heard: Samples) -> int:
    """Where in ``heard`` the sound of ``pcm`` begins, by its middle."""
    middle = pcm[len(pcm) // 2 : len(pcm) // 2 + 1600].astype(float)
    return int(np.argmax(np.correlate(heard.astype(float), middle))) - len(pcm) // 2


SPEECH = np.concatenate([voice(8000, 0.4, hz) for hz in (110.0, 130.0, 150.0, 95.0)] * 3)


def test_on_an_even_line_what_is_said_comes_out_whole_half_a_tenth_of_a_second_later() -> None:
    noise = hiss(80_000, 1000)
    playout = Playout()
    heard = sound(play(playout, frames(noise)))
    start = place(noise, heard)
    assert 0 < start <= 540
    assert heard[start : start + len(noise)].tolist()[400:] == noise.tolist()[400:]
    assert playout.wanted_s <= 0.03


def test_every_tick_gives_one_frame_also_before_between_and_after() -> None:
    sent = frames(SPEECH[:8000]) + frames(SPEECH[:8000], first=150)
    played = play(Playout(), sent, until=START + 6)
    assert [round((frame.at - START) * 50) for frame in played] == list(range(301))
    assert {len(frame.samples) for frame in played} == {160}
    assert [frame.timestamp for frame in played] == [160 * tick for tick in range(301)]


@pytest.mark.parametrize("packet_ms", [10, 30, 60])
def test_packets_of_any_length_become_frames_of_ours(packet_ms: int) -> None:
    noise, count, playout = hiss(40_000, 1000), 8 * packet_ms, Playout()
    sent = [
        HeardFrame(noise[at : at + count], START + at / 8000, False, 8000, at, 8000)
        for at in range(0, len(noise) - count + 1, count)
    ]
    heard = sound(play(playout, sent))
    start = place(noise, heard)
    assert 0 < start <= 540
    end = len(sent) * count
    assert heard[start + 400 : start + end].tolist() == noise[400:end].tolist()


def test_before_the_first_frame_nothing_is_due() -> None:
    playout = Playout()
    assert playout.next_deadline is None
    assert playout.due(1e9) == []
    assert playout.end() == []


@pytest.mark.parametrize("jitter", [0.02, 0.04, 0.1])
def test_jitter_is_learnt_and_bridged(jitter: float) -> None:
    chance = random.Random(3)
    pcm = np.concatenate([SPEECH] * 4)
    late = [chance.uniform(0, jitter) for _ in range(len(pcm) // 160)]
    playout = Playout()
    heard = sound(play(playout, frames(pcm, late)))
    # The start and the end are silence that was not sent.
    assert playout.concealed_s <= 0.5 + jitter + 0.15
    assert playout.wanted_s <= jitter + 0.03
    assert step(heard) <= 1.3 * step(pcm)


def test_what_is_late_is_concealed_and_then_played_all_the_same() -> None:
    late = [0.0] * 1200
    late[900] = 0.2
    playout = Playout()
    heard = sound(play(playout, frames(np.concatenate([SPEECH] * 5), late)))
    assert step(heard) <= 1.3 * step(SPEECH)
    assert playout.dropped_s == 0
    assert playout.shortened_s > 0.1  # the delay came down again


@pytest.mark.parametrize("ppm", [2000.0, -2000.0])
def test_a_drifting_clock_is_followed_without_a_click_or_a_growing_delay(ppm: float) -> None:
    """Ten times the drift of a poor clock for two minutes."""
    pcm = tone(200, 8000, 120)
    playout = Playout()
    waiting = []
    sent, played = frames(pcm, ppm=ppm), []
    for tick in range(120 * 50):
        now = START + tick * 0.02
        while sent and sent[0].at <= now:
            playout.push(sent.pop(0))
        played += playout.due(now)
        waiting.append(playout.waiting_s)
    heard = sound(played)[1600:-1600]
    assert max(waiting[100:]) <= 0.08
    assert step(heard) <= 1.1 * step(pcm)
    # A tone that is joined in phase has no frame that is louder or softer than the others.
    level = [rms(heard[at : at + 400]) for at in range(0, len(heard) - 400, 400)]
    assert min(level) >= 0.9 * max(level)
    changed = playout.lengthened_s if ppm > 0 else playout.shortened_s
    assert changed == pytest.approx(0.22, abs=0.05)  # the rest is what was held at first
    assert not any(frame.concealed for frame in played[10:-10])


def test_a_hole_that_was_filled_by_hearing_costs_no_time() -> None:
    """What waited behind the hole came late; the made-up frame is not played a second time."""
    sent = frames(np.concatenate([SPEECH] * 2))
    for hole in range(30, 230, 40):
        at = sent[hole + 1].at + 0.02
        sent[hole] = HeardFrame(sent[hole].samples, at, True, 8000, sent[hole].timestamp, 8000)
        for behind in (hole + 1, hole + 2):
            sent[behind] = HeardFrame(
                sent[behind].samples,
                max(at, sent[behind].at),
                False,
                8000,
                sent[behind].timestamp,
                8000,
            )
    playout = Playout()
    play(playout, sent)
    assert playout.waiting_s == 0
    assert playout.lengthened_s + playout.shortened_s <= 0.1


def test_a_pause_of_the_sender_is_as_long_as_it_was() -> None:
    sent = frames(SPEECH[:8000]) + frames(SPEECH[:8000], first=125)
    heard = sound(play(Playout(), sent))
    loud = np.abs(heard) > 1000
    first, last = np.flatnonzero(loud[:16_000])[[0, -1]]
    again = 16_000 + int(np.flatnonzero(loud[16_000:])[0])
    assert again - first == pytest.approx(20_000, abs=200)
    assert not loud[last + 600 : again].any()


def test_a_pause_with_comfort_noise_sounds_all_the_time() -> None:
    noise = HeardFrame(hiss(160, 100), START + 1.0, False, 8000, 8000, 8000, noise=True)
    sent = [*frames(SPEECH[:8000]), noise, *frames(SPEECH[:8000], first=125)]
    heard = sound(play(Playout(), sent))
    pause = heard[9600:18_000]
    levels = [rms(pause[at : at + 400]) for at in range(0, len(pause), 400)]
    assert min(levels) > 60
    assert max(levels) < 180


def test_a_stall_of_the_network_does_not_stay_as_a_delay() -> None:
    """Three seconds that come all at once: the oldest are dropped, and counted."""
    late = [0.0] * 600
    for number in range(200, 350):
        late[number] = (350 - number) * 0.02
    playout = Playout()
    played = play(playout, frames(np.concatenate([SPEECH] * 3)[: 600 * 160], late))
    assert playout.dropped_s > 2.0
    assert playout.waiting_s == 0
    assert step(sound(played)) <= 1.3 * step(SPEECH)
    # Half a minute later the delay is small again, as far as speech is cut for it.
    more = frames(np.concatenate([SPEECH] * 8), first=600)
    for frame in more:
        playout.push(frame)
        playout.due(frame.at)
    assert playout.waiting_s <= 0.09


def test_the_delay_has_its_bounds() -> None:
    chance = random.Random(5)
    late = [chance.uniform(0, 0.5) for _ in range(240)]
    playout = Playout(settings=PlayoutSettings(min_delay_s=0.06, max_delay_s=0.1))
    assert playout.wanted_s >= 0.06
    play(playout, frames(SPEECH, late))
    assert playout.wanted_s == 0.1


@pytest.mark.parametrize(("rate", "clock"), [(16000, 8000), (24000, 48000)])
def test_a_wide_codec_comes_out_at_the_rate_that_was_asked_for(rate: int, clock: int) -> None:
    pcm = tone(440, rate, 1.0)
    for wanted in (8000, rate):
        playout = Playout(wanted)
        heard = sound(play(playout, frames(pcm, rate=rate, clock=clock)))
        assert playout.concealed_s <= 0.6
        assert rms(heard[wanted // 5 : wanted]) == pytest.approx(rms(pcm), rel=0.05)
        assert step(heard) <= 1.2 * step(tone(440, wanted, 0.1))


def test_a_codec_with_another_clock_goes_on_where_it_arrives() -> None:
    one = frames(tone(200, 8000, 1.0))
    other = frames(tone(200, 24000, 1.0), rate=24000, clock=48000, first=50)
    for number, frame in enumerate(other):
        other[number] = HeardFrame(
            frame.samples, frame.at, False, 24000, 7_000_000 + number * 960, 48000
        )
    heard = sound(play(Playout(), one + other))
    loud = [rms(heard[at : at + 160]) > 3000 for at in range(0, len(heard), 160)]
    assert sum(loud) >= 98


def test_a_new_count_of_timestamps_is_no_pause() -> None:
    one, other = frames(SPEECH[:8000]), frames(SPEECH[:8000], first=50)
    other = [
        HeardFrame(frame.samples, frame.at, False, 8000, frame.timestamp + 10**9, 8000)
        for frame in other
    ]
    playout = Playout()
    played = play(playout, one + other, until=START + 2.2)
    assert sum(not frame.concealed for frame in played) >= 97


def test_timestamps_that_stand_still_lose_nothing() -> None:
    noise = hiss(80_000, 1000)
    sent = [replace(frame, timestamp=4711) for frame in frames(noise)]
    heard = sound(play(Playout(), sent))
    start = place(noise, heard)
    assert 0 < start <= 800
    assert heard[start : start + len(noise)].tolist()[400:] == noise.tolist()[400:]


def test_timestamps_that_stand_still_keep_the_senders_pauses() -> None:
    spoken = tone(300, 8000, 1.0)
    first, second = frames(spoken), frames(spoken, first=100)
    sent = [replace(frame, timestamp=4711) for frame in first + second]
    heard = sound(play(Playout(), sent))
    loud = [at for at in range(0, len(heard) - 160, 160) if rms(heard[at : at + 160]) > 1000]
    assert 1.9 <= (loud[-1] - loud[0]) / 8000 - 1.0 <= 2.2


def test_when_nothing_comes_any_more_the_rest_is_played() -> None:
    playout = Playout()
    for frame in frames(SPEECH[:1600]):
        playout.push(frame)
    rest = playout.end()
    assert playout.waiting_s == 0
    assert len(rest) <= 14
    assert rms(sound(rest)) > 1000


@settings(max_examples=40, deadline=None)
@given(
    late=st.lists(st.floats(0, 0.3), min_size=60, max_size=60),
    lost=st.sets(st.integers(1, 59), max_size=30),
    looks=st.sets(st.integers(0, 99), max_size=60),
    hold_s=st.sampled_from([None, 0.1, 0.4]),
)
def test_what_is_played_depends_on_arrivals_and_not_on_who_looks_when(
    late: list[float], lost: set[int], looks: set[int], hold_s: float | None
) -> None:
    sent = [frame for number, frame in enumerate(frames(SPEECH[:9600], late)) if number not in lost]

    def played(ticks: set[int]) -> Samples:
        playout = Playout(settings=PlayoutSettings(hold_s=hold_s))
        waiting, out = list(sent), list[HeardFrame]()
        for tick in range(101):
            now = START + tick * 0.02
            while waiting and waiting[0].at <= now:
                playout.push(waiting.pop(0))
            if tick in ticks or tick == 100:
                out += playout.due(now)
        assert [len(frame.samples) for frame in out] == [160] * len(out)
        return sound(out)

    assert played(looks).tolist() == played(set(range(101))).tolist()


@pytest.mark.parametrize(
    "bad",
    [{"min_delay_s": -0.1}, {"max_delay_s": 0.01}, {"first_delay_s": 3.0}, {"max_delay_s": 9.0}],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="delay_s"):
        PlayoutSettings(**bad)


@pytest.mark.parametrize("hold_s", [-0.1, 0.5, float("nan")])
def test_more_than_may_be_held_is_not_held(hold_s: float) -> None:
    with pytest.raises(ValueError, match="hold_s"):
        PlayoutSettings(hold_s=hold_s)


def arrivals(delay: DelayEstimator, lateness: list[float], *, first: int = 0) -> None:
    """Packets of 20 ms with a transit of 7 s and this lateness."""
    for number, late in enumerate(lateness, start=first):
        delay.arrived(100 + number * 0.02 + late, 7.0 + late)


def test_an_even_line_needs_no_more_than_a_step() -> None:
    delay = DelayEstimator()
    arrivals(delay, [0.0] * 1000)
    assert delay.bridge_s == pytest.approx(0.005)
    assert delay.least_s == 7.0


def test_the_first_guess_holds_until_something_is_known() -> None:
    assert DelayEstimator(0.06).bridge_s == pytest.approx(0.065)
    assert not DelayEstimator().known


def test_jitter_is_bridged() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.1) for _ in range(2000)])
    assert delay.bridge_s == pytest.approx(0.1, abs=0.01)


def test_one_packet_in_a_hundred_that_is_late_counts_as_much_as_it_is_heard() -> None:
    delay = DelayEstimator()
    arrivals(delay, [0.04 if number % 100 == 0 else 0.0 for number in range(3000)])
    assert delay.bridge_s == pytest.approx(0.045)


def test_one_stall_in_a_minute_is_not_waited_for() -> None:
    delay = DelayEstimator()
    stall = [max(0.0, 0.3 - 0.02 * number) for number in range(25)]
    arrivals(delay, [0.0] * 3000 + stall + [0.0] * 100)
    assert delay.bridge_s <= 0.01


def test_calm_after_a_storm_is_noticed_within_a_minute() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.2) for _ in range(500)])
    assert delay.bridge_s > 0.18
    arrivals(delay, [0.0] * 2500, first=500)
    assert delay.bridge_s <= 0.02


@pytest.mark.parametrize("ppm", [200, -200])
def test_a_drifting_clock_moves_the_line_at_rest_and_is_no_jitter(ppm: int) -> None:
    delay = DelayEstimator()
    drift = [number * 0.02 * ppm * 1e-6 for number in range(20_000)]
    arrivals(delay, drift)
    assert delay.bridge_s <= 0.005 + 1e-9
    assert delay.least_s == pytest.approx(7.0 + drift[-1], abs=0.001)


def test_another_stream_keeps_what_is_known_of_the_network() -> None:
    delay, chance = DelayEstimator(), random.Random(1)
    arrivals(delay, [chance.uniform(0, 0.1) for _ in range(2000)])
    before = delay.bridge_s
    delay.restart()
    assert not delay.known
    delay.arrived(200.0, -3.0)
    assert delay.least_s == -3.0
    assert delay.bridge_s == before
