"""A call's recording: both directions at their place, at any codec's rate."""

from __future__ import annotations

import random
import wave
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_codecs import G722, OPUS, PCMA, PCMU, FrameEncoder, Payload, to_bytes
from qwen3tts_phone.audio.frames import HeardFrame, SentFrame
from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_phone.records.call_recordings import RecordingTracks
from tests.phone.voices import Samples, hiss, rms, tone, voice

ORIGIN = 50.0


def recorded(path: Path) -> tuple[Samples, Samples, int]:
    """The caller's track, the agent's, and their rate."""
    with wave.open(str(path)) as wav:
        data = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
        return data[:, 0], data[:, 1], wav.getframerate()


def say(tracks: RecordingTracks, payload: Payload, pcm_24k: Samples, at: float) -> None:
    encoder = FrameEncoder(24000, payload)
    frames = encoder.push(to_bytes(pcm_24k)) + encoder.flush()
    decoder = payload.decoder()
    for number, frame in enumerate(frames):
        sent_at = at + number * 0.02 + 0.0003 * (number % 3)
        tracks.sent(SentFrame(decoder.decode(frame.payload), payload.sample_hz, sent_at))


def hear(
    tracks: RecordingTracks,
    pcm: Samples,
    rate: int,
    at: float,
    *,
    ppm: float = 0.0,
    clock: int = 8000,
) -> None:
    count = rate // 50
    for number in range(len(pcm) // count):
        arrived = at + number * 0.02 * (1 + ppm * 1e-6)
        samples = pcm[number * count : (number + 1) * count]
        tracks.heard(HeardFrame(samples, arrived, False, rate, number * clock // 50, clock))
        tracks.tick(arrived)


def span(track: Samples, rate: int) -> tuple[float, float]:
    """Where it is loud, seconds."""
    loud = np.flatnonzero(np.abs(track) > 1000)
    return loud[0] / rate, loud[-1] / rate


@pytest.mark.parametrize("payload", [PCMU, PCMA, G722, OPUS], ids=lambda p: p.name)
def test_both_directions_lie_in_their_place_at_the_codecs_rate(
    tmp_path: Path, payload: Payload
) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav", rate_hz=payload.sample_hz)
    tracks = RecordingTracks(recorder, ORIGIN)
    say(tracks, payload, voice(24000, 1.0), ORIGIN + 1.0)
    hear(tracks, tone(300, payload.sample_hz, 1.0), payload.sample_hz, ORIGIN + 2.5)
    tracks.close(ORIGIN + 4.0)
    caller, agent, rate = recorded(tmp_path / "f.wav")
    assert rate == payload.sample_hz
    assert len(caller) == 4 * rate
    assert list(span(agent, rate)) == pytest.approx([1.0, 2.0], abs=0.03)
    # The caller's track lies where it came in; when nothing comes any more, its end fades.
    first, last = span(caller, rate)
    assert first == pytest.approx(2.5, abs=0.005)
    assert 3.5 <= last <= 3.6


def test_the_callers_track_has_no_holes_where_frames_were_late(tmp_path: Path) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav")
    tracks = RecordingTracks(recorder, ORIGIN)
    pcm = tone(300, 8000, 4.0)
    hear(tracks, pcm[:16_000], 8000, ORIGIN)
    tracks.heard(HeardFrame(pcm[16_000:16_160], ORIGIN + 2.06, False, 8000, 16_000, 8000))
    for number in range(101, 200):
        at = max(ORIGIN + 2.06, ORIGIN + number * 0.02)
        samples = pcm[number * 160 : (number + 1) * 160]
        tracks.heard(HeardFrame(samples, at, False, 8000, number * 160, 8000))
    tracks.close(ORIGIN + 4.2)
    caller, _, _ = recorded(tmp_path / "f.wav")
    levels = [rms(caller[at : at + 160]) for at in range(1600, 31_000, 160)]
    assert min(levels) > 0.5 * max(levels)


def test_a_busy_process_that_takes_frames_from_the_line_late_makes_no_holes(tmp_path: Path) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav")
    tracks = RecordingTracks(recorder, ORIGIN)
    pcm = tone(300, 8000, 4.0)
    for number in range(200):
        at = ORIGIN + number * 0.02
        if number % 20 == 19:  # nothing was taken for 0.4 s, but the time has come
            tracks.tick(at)
            for late in range(number - 19, number + 1):
                samples, came = pcm[late * 160 : (late + 1) * 160], ORIGIN + late * 0.02
                tracks.heard(HeardFrame(samples, came, False, 8000, late * 160, 8000))
    tracks.close(ORIGIN + 4.2)
    caller, _, _ = recorded(tmp_path / "f.wav")
    levels = [rms(caller[at : at + 160]) for at in range(1600, 31_000, 160)]
    assert min(levels) > 0.9 * max(levels)


def test_a_clock_that_runs_away_does_not_take_the_track_with_it(tmp_path: Path) -> None:
    """A minute at 2000 ppm is 120 ms; the tracks' places are those of our clock."""
    recorder = StereoRecorder(tmp_path / "f.wav")
    tracks = RecordingTracks(recorder, ORIGIN)
    pcm = np.zeros(60 * 8000, np.int16)
    pcm[-8000:] = tone(300, 8000, 1.0)
    hear(tracks, pcm, 8000, ORIGIN, ppm=-2000)
    tracks.close(ORIGIN + 61)
    caller, _, _ = recorded(tmp_path / "f.wav")
    assert span(caller, 8000)[0] == pytest.approx(59 - 0.118, abs=0.04)


@pytest.mark.parametrize(("before", "after"), [(PCMU, OPUS), (OPUS, PCMA), (G722, PCMU)])
def test_a_change_of_codec_goes_on_in_the_same_file(
    tmp_path: Path, before: Payload, after: Payload
) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav", rate_hz=before.sample_hz)
    tracks = RecordingTracks(recorder, ORIGIN)
    say(tracks, before, voice(24000, 0.5), ORIGIN + 0.5)
    hear(tracks, tone(300, before.sample_hz, 0.5), before.sample_hz, ORIGIN, clock=before.clock_hz)
    say(tracks, after, voice(24000, 0.5), ORIGIN + 1.5)
    hear(
        tracks, tone(300, after.sample_hz, 0.5), after.sample_hz, ORIGIN + 1.5, clock=after.clock_hz
    )
    tracks.close(ORIGIN + 3)
    caller, agent, rate = recorded(tmp_path / "f.wav")
    assert rate == before.sample_hz
    for track, spans in (
        (agent, ((0.55, 0.95), (1.55, 1.95))),
        (caller, ((0.05, 0.45), (1.55, 1.95))),
    ):
        levels = [rms(track[round(a * rate) : round(b * rate)]) for a, b in spans]
        assert levels[1] == pytest.approx(levels[0], rel=0.2)
        assert levels[0] > 2000


WORDS = [voice(8000, 0.3 + 0.07 * n, pitch) for n, pitch in enumerate((110.0, 130.0, 95.0, 150.0))]
PAUSE = np.zeros(4800, np.int16)


def talk(count: int, before_s: float = 0.0) -> tuple[Samples, list[tuple[int, Samples]]]:
    """Words with pauses of 0.6 s behind silence, and where each word begins."""
    parts, places, at = [np.zeros(round(before_s * 8000), np.int16)], [], round(before_s * 8000)
    for number in range(count):
        word = WORDS[number % len(WORDS)]
        places.append((at, word))
        parts += [word, PAUSE]
        at += len(word) + len(PAUSE)
    return np.concatenate(parts), places


def record(
    path: Path, pcm: Samples, late: list[float], *, ppm: float = 0.0, bunch: int = 1
) -> Samples:
    """The caller's track of frames that come so late, ``bunch`` of them together."""
    recorder = StereoRecorder(path)
    tracks, last, count = RecordingTracks(recorder, ORIGIN), 0.0, len(pcm) // 160
    for number in range(count):
        sent = min(number // bunch * bunch + bunch - 1, count - 1)
        last = max(last, ORIGIN + 1 + sent * 0.02 * (1 + ppm * 1e-6) + late[number])
        samples = pcm[number * 160 : (number + 1) * 160]
        tracks.tick(last)
        tracks.heard(HeardFrame(samples, last, False, 8000, number * 160, 8000))
    tracks.close(last + 0.5)
    return recorded(path)[0]


def off(track: Samples, places: list[tuple[int, Samples]], reach: int = 4000) -> list[int | None]:
    """By how many samples each word lies beside its place; None where it is not there exactly."""
    found: list[int | None] = []
    for place, word in places:
        near = track[8000 + place - min(reach, 8000 + place) :][: len(word) + 2 * reach]
        match = np.correlate(near.astype(float), word.astype(float), "valid")
        at = int(np.argmax(match))
        same = np.array_equal(near[at : at + len(word)], word)
        found.append(at - min(reach, 8000 + place) if same else None)
    return found


@pytest.mark.parametrize("before_s", [0.0, 8.0])
@pytest.mark.parametrize("jitter_s", [0.0, 0.04, 0.1, 0.25])
@pytest.mark.parametrize("bunch", [1, 5], ids=["sip", "stream"])
def test_words_are_recorded_to_the_sample_where_the_buffer_bridges_the_jitter(
    tmp_path: Path, before_s: float, jitter_s: float, bunch: int
) -> None:
    chance = random.Random(5)
    pcm, places = talk(14, before_s)
    late = [chance.uniform(0, jitter_s) for _ in range(len(pcm) // 160)]
    assert None not in off(record(tmp_path / "f.wav", pcm, late, bunch=bunch), places)


@pytest.mark.parametrize("ppm", [100.0, -100.0, 1000.0, -1000.0])
def test_a_drifting_clock_is_corrected_in_the_pauses_only(tmp_path: Path, ppm: float) -> None:
    pcm, places = talk(120)
    late = [0.0] * (len(pcm) // 160)
    track = record(tmp_path / "f.wav", pcm, late, ppm=ppm)
    beside = off(track, places)
    words = [each for each in beside if each is not None]
    assert len(words) == len(beside)
    for (place, _), each in zip(places, words, strict=True):
        assert each - place * ppm * 1e-6 == pytest.approx(0.0, abs=0.03 * 8000)


@pytest.mark.parametrize("ppm", [200.0, -200.0])
def test_who_speaks_for_a_minute_without_a_pause_is_recorded_whole(
    tmp_path: Path, ppm: float
) -> None:
    pcm = np.concatenate([*WORDS * 36])[: 60 * 8000]
    track = record(tmp_path / "f.wav", pcm, [0.0] * (len(pcm) // 160), ppm=ppm)
    assert off(track, [(0, pcm)], reach=8) in ([-1], [0], [1])


def test_words_are_whole_behind_a_pause_in_which_a_far_end_sent_nothing_and_counted_none(
    tmp_path: Path,
) -> None:
    """A stream without timestamps: its place goes on only with what it sends."""
    pcm, places = talk(8)
    pauses = [place + len(word) for place, word in places]
    chance = random.Random(2)
    late, waited = [], 0.0
    for number in range(len(pcm) // 160):
        if any((number - 1) * 160 < pause <= number * 160 for pause in pauses[::2]):
            waited += 1.3
        late.append(waited + chance.uniform(0, 0.04))
    track = record(tmp_path / "f.wav", pcm, late)
    found = off(track, places, reach=8000 * 6)
    assert None not in found


def test_a_stall_longer_than_the_buffer_loses_nothing_and_the_pauses_make_up_for_it(
    tmp_path: Path,
) -> None:
    pcm, places = talk(20)
    late = [0.0] * (len(pcm) // 160)
    for number in range(200, 250):
        late[number] = (250 - number) * 0.02
    beside = off(record(tmp_path / "f.wav", pcm, late), places, reach=8000)
    assert sum(each is None for each in beside) <= 1  # the word in which the stall lies
    assert beside[-1] == pytest.approx(0, abs=0.03 * 8000)


@pytest.mark.parametrize("noise", [20.0, 80.0, 150.0])
def test_a_noisy_line_s_drift_is_corrected_in_the_pauses_too(tmp_path: Path, noise: float) -> None:
    pcm, places = talk(60)
    pcm = np.clip(pcm.astype(int) + hiss(len(pcm), noise), -32768, 32767).astype(np.int16)
    heard = [(place, pcm[place : place + len(word)]) for place, word in places]
    track = record(tmp_path / "f.wav", pcm, [0.0] * (len(pcm) // 160), ppm=-1000.0)
    beside = off(track, heard)
    assert None not in beside
    assert beside[-1] == pytest.approx(-places[-1][0] * 1e-3, abs=0.03 * 8000)
