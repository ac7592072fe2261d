"""Aligned SNR of the caller's track of a recording, over SIP and over a stream, in simulated time.

Sentences of the embedded voice, in µ-law, cross a line without loss: packets of 20 ms with
timestamps (SIP), or messages of 100 ms without them, in order, as TCP gives them (stream). What
`AudioDecoder` or `StreamDecoder` makes of them goes into `RecordingTracks`, and beside it through
the playout of a live listener, which kept the recordings before. Each word (sound between pauses of
80 ms) is put over what was recorded where it fits best; its SNR is against what was sent, at most
99 dB = the same to the sample.

FIGURE: ``aligned_snr_db`` = the worst word over all lines, ``warped`` = words that are not the same
to the sample, out of ``words``; ``live_aligned_snr_db`` and ``live_warped`` = behind the playout of
a live listener; ``late_words_ms`` = how far a word lies beside its place at most.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import Bench
from numpy.typing import NDArray

from qwen3tts_codecs import PCMU, FrameEncoder
from qwen3tts_engine.base import SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_pacer.ring import InboundFrame
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.audio.inbound import AudioDecoder
from qwen3tts_phone.audio.playout import Playout
from qwen3tts_phone.audio.wav import StereoRecorder
from qwen3tts_phone.records.call_recordings import RecordingTracks
from qwen3tts_phone.streams.carriers.adapter import StreamAudio
from qwen3tts_phone.streams.inbound import StreamDecoder

Samples = NDArray[np.int16]

TEXT = (
    "The birch canoe slid on the smooth planks, and nobody asked why.",
    "Glue the sheet to the dark blue background before you leave.",
    "It is easy to tell the depth of a well when the rope is short.",
)
RATE = 8000
COUNT = 160
ORIGIN = 50.0
PAUSE_S = 0.7
SILENT_PEAK = 16
REACH = round(0.3 * RATE)
"""Distance from its place within which a word is searched."""
MOST_DB = 99.0


class Line(NamedTuple):
    """Path between the caller and us."""

    name: str
    stream: bool = False
    jitter_s: float = 0.0
    ppm: float = 0.0
    silent_s: float = 0.0


KINDS = (
    Line("clean"),
    Line("40 ms jitter", jitter_s=0.04),
    Line("100 ms jitter", jitter_s=0.1),
    Line("+100 ppm, 20 ms jitter", jitter_s=0.02, ppm=100.0),
    Line("-100 ppm, 20 ms jitter", jitter_s=0.02, ppm=-100.0),
    Line("8 s of silence first, 40 ms jitter", jitter_s=0.04, silent_s=8.0),
)
LINES = (
    *(each._replace(name=f"SIP, {each.name}") for each in KINDS),
    *(each._replace(name=f"stream, {each.name}", stream=True) for each in KINDS),
)


def crossed(line: Line, payloads: list[bytes]) -> list[HeardFrame]:
    """Audio heard of these packets, each in its time."""
    chance, heard, last = random.Random(line.name), list[HeardFrame](), 0.0
    sip, stream = AudioDecoder({PCMU.payload_type: PCMU}), StreamDecoder()
    together = 5 if line.stream else 1
    for first in range(0, len(payloads), together):
        message = b"".join(payloads[first : first + together])
        sent = (first + together) * 0.02 * (1 + line.ppm * 1e-6)
        last = max(last, ORIGIN + sent + chance.uniform(0.0, line.jitter_s))
        if line.stream:
            heard += stream.take(StreamAudio(message), PCMU, last)
        else:
            stamp = first * COUNT
            heard += sip.take(InboundFrame(message, 0, stamp, last, first, False, False))
    return heard


def recorded(heard: list[HeardFrame]) -> Samples:
    """The left track."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call.wav"
        tracks = RecordingTracks(StereoRecorder(path, rate_hz=RATE), ORIGIN)
        for frame in heard:
            tracks.tick(frame.at)
            tracks.heard(frame)
        tracks.close(heard[-1].at + 0.5)
        with wave.open(str(path)) as wav:
            data = np.frombuffer(wav.readframes(wav.getnframes()), "<i2")
    return data.reshape(-1, 2)[:, 0]


def live(heard: list[HeardFrame]) -> Samples:
    """Audio at a live listener, at its place."""
    playout, played, waiting = Playout(RATE), list[HeardFrame](), list(heard)
    for tick in range(round((heard[-1].at - ORIGIN + 0.5) * 50)):
        now = ORIGIN + tick * 0.02
        while waiting and waiting[0].at <= now:
            playout.push(waiting.pop(0))
        played += playout.due(now)
    before = np.zeros(round((played[0].at - ORIGIN) * RATE), np.int16)
    return np.concatenate([before, *(frame.samples for frame in played)])


def words(pcm: Samples) -> list[tuple[int, int]]:
    """Runs of audio, with pauses of 80 ms between them."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > SILENT_PEAK)
    ends = np.flatnonzero(np.diff(loud) > 0.08 * RATE)
    starts = [int(loud[0]), *(int(loud[end + 1]) for end in ends)]
    stops = [*(int(loud[end]) + 1 for end in ends), int(loud[-1]) + 1]
    return [each for each in zip(starts, stops, strict=True) if each[1] - each[0] > COUNT]


def fitted(pcm: Samples, start: int, stop: int, track: Samples) -> tuple[float, int]:
    """A word's SNR (dB) where it fits best, and how many samples beside its place that is."""
    word = pcm[start:stop].astype(float)
    low = max(0, start - REACH)
    near = track[low : stop + REACH].astype(float)
    if len(near) < len(word):
        return 0.0, REACH
    at = int(np.argmax(np.correlate(near, word, "valid")))
    noise = float(np.square(near[at : at + len(word)] - word).sum())
    snr = 10 * np.log10(float(np.square(word).sum()) / noise) if noise else MOST_DB
    return min(MOST_DB, float(snr)), low + at - start


async def spoken(rounds: int) -> Samples:
    """The caller's sentences at 8 kHz, with pauses."""
    engine, parts = EmbeddedEngine(), list[Samples]()
    await engine.start()
    try:
        for text in TEXT:
            async for chunk in engine.synthesize(SynthesisRequest(text, final=True)):
                parts.append(np.frombuffer(chunk.pcm, "<i2"))
            parts.append(np.zeros(round(PAUSE_S * 24000), np.int16))
    finally:
        await engine.close()
    return np.concatenate(parts * rounds)


def main() -> None:
    """Measure and print."""
    bench = Bench("recording_track", (__doc__ or "").partition("\n")[0])
    speech = asyncio.run(spoken(2 if bench.quick else 8))
    encoder = FrameEncoder(24000, PCMU)
    spoken_frames = [frame.payload for frame in (*encoder.push(speech.tobytes()), *encoder.flush())]
    rows: list[list[object]] = []
    every: list[tuple[float, int]] = []
    every_live: list[float] = []
    for line in LINES:
        silent = [PCMU.silent_frame(20)] * round(line.silent_s * 50)
        payloads = silent + [each for each in spoken_frames if len(each) == COUNT]
        decoder = PCMU.decoder()
        pcm = np.concatenate([decoder.decode(each) for each in payloads])
        heard = crossed(line, payloads)
        rest = min(each.at - each.timestamp / RATE for each in heard)
        lead = round((rest - ORIGIN) * RATE)
        places = words(pcm)
        ours, beside = recorded(heard), live(heard)
        found = [fitted(pcm, *place, ours[lead:]) for place in places]
        was = [fitted(pcm, *place, beside[lead:])[0] for place in places]
        every += found
        every_live += was
        rows.append(
            [
                line.name,
                len(places),
                min(snr for snr, _ in found),
                sum(snr < MOST_DB for snr, _ in found),
                round(max(1000 * abs(off) / RATE for _, off in found), 1),
                min(was),
                sum(snr < MOST_DB for snr in was),
            ]
        )
    bench.table(
        "the caller's track",
        ["line", "words", "worst SNR dB", "warped", "beside ms", "live: worst SNR", "warped"],
        rows,
    )
    bench.figure(
        aligned_snr_db=min(snr for snr, _ in every),
        warped=sum(snr < MOST_DB for snr, _ in every),
        words=len(every),
        late_words_ms=max(1000 * abs(off) / RATE for _, off in every),
        live_aligned_snr_db=min(every_live),
        live_warped=sum(snr < MOST_DB for snr in every_live),
    )


if __name__ == "__main__":
    main()
