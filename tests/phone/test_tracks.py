"""A call's recording: both directions at their place, at any codec's rate."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from qwen3tts_codecs import G722, OPUS, PCMA, PCMU, FrameEncoder, Payload, to_bytes
from qwen3tts_phone.call_events import HeardFrame
from qwen3tts_phone.record import StereoRecorder
from qwen3tts_phone.sent_audio import SentFrame
from qwen3tts_phone.tracks import CallTracks
from tests.phone.voices import Samples, rms, tone, voice

ORIGIN = 50.0


def recorded(path: Path) -> tuple[Samples, Samples, int]:
    """The caller's track, the agent's, and their rate."""
    with wave.open(str(path)) as wav:
        data = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)
        return data[:, 0], data[:, 1], wav.getframerate()


def say(tracks: CallTracks, payload: Payload, pcm_24k: Samples, at: float) -> None:
    encoder = FrameEncoder(24000, payload)
    frames = encoder.push(to_bytes(pcm_24k)) + encoder.flush()
    decoder = payload.decoder()
    for number, frame in enumerate(frames):
        sent_at = at + number * 0.02 + 0.0003 * (number % 3)
        tracks.sent(SentFrame(decoder.decode(frame.payload), payload.sample_hz, sent_at))


def hear(
    tracks: CallTracks, pcm: Samples, rate: int, at: float, *, ppm: float = 0.0, clock: int = 8000
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
    tracks = CallTracks(recorder, ORIGIN)
    say(tracks, payload, voice(24000, 1.0), ORIGIN + 1.0)
    hear(tracks, tone(300, payload.sample_hz, 1.0), payload.sample_hz, ORIGIN + 2.5)
    tracks.close(ORIGIN + 4.0)
    caller, agent, rate = recorded(tmp_path / "f.wav")
    assert rate == payload.sample_hz
    assert len(caller) == 4 * rate
    assert list(span(agent, rate)) == pytest.approx([1.0, 2.0], abs=0.03)
    # The caller's track lies where a listener behind the jitter buffer hears it; when nothing
    # comes any more, its end fades.
    first, last = span(caller, rate)
    assert first == pytest.approx(2.56, abs=0.02)
    assert 3.54 <= last <= 3.64


def test_the_callers_track_has_no_holes_where_frames_were_late(tmp_path: Path) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav")
    tracks = CallTracks(recorder, ORIGIN)
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
    tracks = CallTracks(recorder, ORIGIN)
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
    tracks = CallTracks(recorder, ORIGIN)
    pcm = np.zeros(60 * 8000, np.int16)
    pcm[-8000:] = tone(300, 8000, 1.0)
    hear(tracks, pcm, 8000, ORIGIN, ppm=-2000)
    tracks.close(ORIGIN + 61)
    caller, _, _ = recorded(tmp_path / "f.wav")
    assert span(caller, 8000)[0] == pytest.approx(59 - 0.118 + 0.05, abs=0.04)


@pytest.mark.parametrize(("before", "after"), [(PCMU, OPUS), (OPUS, PCMA), (G722, PCMU)])
def test_a_change_of_codec_goes_on_in_the_same_file(
    tmp_path: Path, before: Payload, after: Payload
) -> None:
    recorder = StereoRecorder(tmp_path / "f.wav", rate_hz=before.sample_hz)
    tracks = CallTracks(recorder, ORIGIN)
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
        (caller, ((0.12, 0.5), (1.62, 2.0))),
    ):
        levels = [rms(track[round(a * rate) : round(b * rate)]) for a, b in spans]
        assert levels[1] == pytest.approx(levels[0], rel=0.2)
        assert levels[0] > 2000
