"""Noise suppression on telephone sound: words understood, other voices kept out, time and delay.

Ours (`qwen3tts_phone.detection.noise_suppression`) beside the sound as it comes, and beside RNNoise
and DeepFilterNet where they are installed (noise_peers.py).

- *word errors*: of English prompts recorded by people (recorded_prompts.py), -22 dBFS, in noise of
  five kinds at 5 and 20 dB, 1.5 s of it before the caller, through mu-law, by Whisper; each
  prompt's sound is cut out 0.3 s before and after. The babble is of eight recorded people.
- *onsets a minute*, *in turns*: no caller speaks to the agent, but eight people speak among
  themselves, eSpeak's or recorded, at -30 dBFS: onsets, and the share of the time in which the
  caller is taken to be speaking. The figure's is the mean of both babbles.
- *callers*: a caller at -22 dBFS, so many dB above that babble, from the third second on: onset
  after the first sound, ms; *missed*: no onset in the utterance, and no turn that ended after it;
  *before*: calls in which the babble was a turn.
- *clean line*: the same callers at levels of a quiet line: the onset must not be later.
- *us*: processor time of 20 ms of sound in noise and on a clean line; *delay*: of the sound for the
  recogniser. Detection decides by the sound as it comes, and asks of the suppressed sound too.
"""

from __future__ import annotations

import argparse
import asyncio
import time
import wave
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from common import Bench
from line_sounds import (
    FRAME,
    at_level,
    babble_of,
    band,
    callers,
    mix,
    noise,
    on_the_line,
    voiced_from_to,
)
from noise_peers import PEER_FRAME, Peer, Samples, peers
from numpy.typing import NDArray
from recorded_prompts import Prompt, errors, prompts, sounds, words
from voice_activity import Tally, judge, listen

from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.detection.events import ListenEvent, OnsetHeard, TurnEnded
from qwen3tts_phone.detection.noise_suppression import DELAY_S, NoiseSuppressor
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_wire.whisper.model import RATE_HZ as HEARD_HZ
from qwen3tts_wire.whisper.model import WhisperModel

RATE_HZ = 8000
LEVEL_DBFS = -22.0
BABBLE_DBFS = -30.0
BEFORE_S, AFTER_S, AROUND_S = 1.5, 0.6, 0.3
WORD_SNRS = (5, 20)
KINDS = ("white", "pink", "street", "babble", "music")
CALLER_SNRS = (20, 10, 5, 0)
CLEAN_DBFS = (-22, -34)
Sound = NDArray[np.float64]
Suppress = Callable[[Samples], Samples]
Listen = Callable[[Samples], list[ListenEvent]]


def ours(*, always: bool = False) -> Suppress:
    """Our suppressor, frame by frame, its delay taken off."""

    def suppress(samples: Samples) -> Samples:
        suppressor = NoiseSuppressor(RATE_HZ, always=always)
        parts = [suppressor.push(samples[at : at + FRAME]) for at in range(0, len(samples), FRAME)]
        return np.concatenate([*parts, suppressor.flush()])

    return suppress


def aligned(peer: Peer, late: int) -> Suppress:
    """A peer's suppressor, its delay taken off."""

    def suppress(samples: Samples) -> Samples:
        longer = np.concatenate((samples, np.zeros(late, np.int16)))
        return peer.suppress(longer)[late:]

    return suppress


def delay_of(peer: Peer, sound: Samples) -> int:
    """Samples by which a peer's sound is late, by correlation."""
    after = peer.suppress(sound).astype(np.float64)
    size = 2 * len(sound)
    spectrum = np.fft.rfft(after, size) * np.conj(np.fft.rfft(sound.astype(np.float64), size))
    return int(np.argmax(np.fft.irfft(spectrum)[: RATE_HZ // 5]))


def people(seconds: float, chance: np.random.Generator) -> Sound:
    """Eight recorded people together, two of each of four voices, power 1."""
    length = round(seconds * RATE_HZ)
    total = np.zeros(length)
    for number in range(8):
        files = sorted(sounds(("fr", "it", "ru", "es")[number % 4]).glob("*.wav"))
        parts: list[Sound] = []
        for at in chance.permutation(len(files)):
            with wave.open(str(files[at])) as file:
                sound = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768.0
            if len(sound) > RATE_HZ:
                parts.append(at_level(sound, LEVEL_DBFS))
            if sum(map(len, parts)) >= length:
                break
        total += np.concatenate(parts)[:length]
    return unit(band(total))


def unit(sound: Sound) -> Sound:
    """The same with power 1."""
    return sound / float(np.sqrt(np.mean(sound**2)))


def in_noise(prompt: Prompt, kind: str, snr_db: int, number: int, babble: Sound) -> Samples:
    """A prompt's sound on a line with noise."""
    chance = np.random.default_rng(1000 * number + 10 * KINDS.index(kind) + snr_db)
    quiet = np.zeros(round(BEFORE_S * RATE_HZ)), np.zeros(round(AFTER_S * RATE_HZ))
    whole = np.concatenate((quiet[0], at_level(prompt.samples, LEVEL_DBFS), quiet[1]))
    around = noise(kind, len(whole) / RATE_HZ + 0.1, chance, babble)
    return on_the_line(mix(whole, around, snr_db, LEVEL_DBFS))


def word_errors(
    model: WhisperModel, found: Sequence[Prompt], contenders: dict[str, Suppress], babble: Sound
) -> dict[tuple[str, int, str], float]:
    """Word error rate, per cent, of each contender, distance and kind of noise, and of all."""
    counts: dict[tuple[str, int, str], list[int]] = defaultdict(lambda: [0, 0])
    for number, prompt in enumerate(found):
        first, last = voiced_from_to(at_level(prompt.samples, LEVEL_DBFS))
        begins = round((BEFORE_S - AROUND_S) * RATE_HZ) + first
        ends = round((BEFORE_S + AROUND_S) * RATE_HZ) + last
        for kind in KINDS:
            for snr_db in WORD_SNRS:
                sound = in_noise(prompt, kind, snr_db, number, babble)
                texts: dict[bytes, str] = {}  # a clean line's sound is the same with and without
                for name, suppress in contenders.items():
                    cut = suppress(sound)[begins:ends]
                    if cut.tobytes() not in texts:
                        texts[cut.tobytes()] = text(model, cut)
                    heard = words(texts[cut.tobytes()], prompt.language)
                    for key in ((name, snr_db, kind), (name, snr_db, "all")):
                        counts[key][0] += len(prompt.words)
                        counts[key][1] += errors(prompt.words, heard)
    return {key: 100 * wrong / said for key, (said, wrong) in counts.items()}


def text(model: WhisperModel, samples: Samples) -> str:
    """Whisper's words of 8 kHz sound."""
    up = Resampler(RATE_HZ, HEARD_HZ)
    answer = model.hear(np.concatenate((up.push(samples), up.flush())))
    return answer.text if answer is not None else ""


def alone(heard: Listen, babble: Sound) -> tuple[float, float]:
    """Onsets a minute in babble alone, and the share of it in turns, per cent."""
    sound = on_the_line(babble * 10 ** (BABBLE_DBFS / 20))
    seconds = len(sound) / RATE_HZ
    events = heard(sound)
    onsets = sum(isinstance(event, OnsetHeard) for event in events)
    inside = sum(event.at - event.began_at for event in events if isinstance(event, TurnEnded))
    began = [event.began_at for event in events if isinstance(event, OnsetHeard)]
    if began and not any(isinstance(e, TurnEnded) and e.began_at >= began[-1] for e in events):
        inside += seconds - began[-1]
    return onsets / (seconds / 60), 100 * inside / seconds


def scene(said: Sound, dbfs: float, around: Sound) -> tuple[Samples, float, float]:
    """A call with the caller from the third second on, and when they speak."""
    first, last = voiced_from_to(said)
    before, after = 2 * RATE_HZ, round(1.5 * RATE_HZ)
    whole = np.concatenate((np.zeros(before), at_level(said, dbfs), np.zeros(after)))
    return on_the_line(whole + around[: len(whole)]), 2 + first / RATE_HZ, 2 + last / RATE_HZ


def caller_rows(
    heard: Listen, said: Sequence[Sound], babbles: dict[str, Sound]
) -> dict[str, Tally]:
    """Onsets of callers in babble and on a clean line."""
    rows: dict[str, Tally] = defaultdict(Tally)
    chance = np.random.default_rng(11)
    for each in said:
        length = len(each) + 4 * RATE_HZ
        for snr_db in CALLER_SNRS:
            for name, babble in babbles.items():
                start = int(chance.integers(len(babble) - length))
                around = babble[start : start + length] * 10 ** ((LEVEL_DBFS - snr_db) / 20)
                sound, begins, ends = scene(each, LEVEL_DBFS, around)
                judge(heard(sound), begins, ends, rows[f"babble {name}, {snr_db} dB"])
        for dbfs in CLEAN_DBFS:
            hiss = chance.normal(size=length) * 10 ** (-70 / 20)
            sound, begins, ends = scene(each, dbfs, hiss)
            judge(heard(sound), begins, ends, rows[f"clean line, {dbfs} dBFS"])
    return rows


def us_of(work: Callable[[], object], seconds: float) -> float:
    """Processor time of 20 ms, us."""
    began = time.process_time()
    work()
    return 1e6 * (time.process_time() - began) / (seconds * 50)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="tiny.en", help="of Whisper, with commas")
    bench = Bench("noise", __doc__ or "", parser)
    chance = np.random.default_rng(7)
    found = prompts(["en"], 3 if bench.quick else None)
    synthetic = asyncio.run(callers(7 if bench.quick else 28, chance))
    minutes = 0.5 if bench.quick else 3.0
    babbles = {
        "of eSpeak": unit(band(babble_of(synthetic, 60 * minutes, chance))),
        "of people": people(60 * minutes, chance),
    }
    said = synthetic + [each.samples for each in found]
    clean = on_the_line(at_level(np.concatenate([each.samples for each in found]), LEVEL_DBFS))
    noisy = on_the_line(
        mix(clean / 32768, noise("pink", len(clean) / RATE_HZ + 0.1, chance), 5, LEVEL_DBFS)
    )
    seconds = len(clean) / RATE_HZ
    others = peers()
    if not others:
        bench.note("RNNoise and DeepFilterNet are not here: see noise_peers.py")
    delays = {peer.name: delay_of(peer, clean) for peer in others}

    off, auto = ListenSettings(noise_suppression="off"), ListenSettings()
    costs: list[list[object]] = [
        [
            "ours",
            us_of(lambda: ours()(noisy), seconds),
            us_of(lambda: ours()(clean), seconds),
            1000 * DELAY_S,
            "MIT, as this",
            "none",
        ],
        [
            "ours, in detection",
            us_of(lambda: listen(noisy, auto), seconds)
            - us_of(lambda: listen(noisy, off), seconds),
            us_of(lambda: listen(clean, auto), seconds)
            - us_of(lambda: listen(clean, off), seconds),
            0.0,
            "",
            "",
        ],
    ]
    for peer in others:
        late = delays[peer.name] + 2 * 24  # both resamplers, 3 ms each at 8 kHz
        us = us_of(lambda peer=peer: peer.suppress(noisy), seconds)  # type: ignore[misc]
        costs.append([peer.name, us, us, late / 8, peer.licence, peer.weights])
    columns = ["suppressor", "us in noise", "us clean", "delay ms", "licence", "weights"]
    bench.table(f"20 ms of sound (peers: with 8 to 48 kHz and back, {PEER_FRAME})", columns, costs)

    hears: dict[str, Listen] = {
        "off": lambda sound: listen(sound, off),
        "ours": lambda sound: listen(sound, auto),
    }
    for peer in others:
        hears[peer.name] = lambda sound, peer=peer: listen(peer.suppress(sound), off)  # type: ignore[misc]
    false: dict[str, dict[str, tuple[float, float]]] = {}
    rows: list[list[object]] = []
    for name, heard in hears.items():
        false[name] = {kind: alone(heard, babble) for kind, babble in babbles.items()}
        rows.append([name, *(value for pair in false[name].values() for value in pair)])
    columns = ["suppressor"]
    for kind in babbles:
        columns += [f"onsets a minute, {kind}", f"in turns %, {kind}"]
    bench.table(f"babble of eight alone, {BABBLE_DBFS:.0f} dBFS", columns, rows)

    columns = ["sound", "onset p50", "p95", "missed %", "before %", "end p50", "p95"]
    for name in ("off", "ours"):
        tallies = caller_rows(hears[name], said, babbles)
        shown = []
        for key, tally in tallies.items():
            p50, p95, missed, _, end50, end95, early = tally.row()
            shown.append([key, p50, p95, missed, early, end50, end95])
        bench.table(f"callers, {name}", columns, shown)

    suppressors: dict[str, Suppress] = {"off": lambda samples: samples, "ours": ours()}
    for peer in others:
        suppressors[peer.name] = aligned(peer, delays[peer.name])
    changes: dict[int, float] = {}
    for model_name in bench.args.models.split(","):
        model = WhisperModel.load(model_name, ("en",), device="cpu", threads=1)
        rates = word_errors(model, found, suppressors, babbles["of people"])
        shown = [
            [name, snr_db, *(rates[name, snr_db, kind] for kind in (*KINDS, "all"))]
            for snr_db in WORD_SNRS
            for name in suppressors
        ]
        columns = ["suppressor", "dB", *KINDS, "all"]
        bench.table(f"word errors (%), Whisper {model_name}", columns, shown)
        for snr_db in WORD_SNRS:
            before, after = rates["off", snr_db, "all"], rates["ours", snr_db, "all"]
            changes.setdefault(snr_db, 100 * (after / before - 1) if before else 0.0)
    bench.figure(
        false_onsets_min=float(np.mean([each[0] for each in false["ours"].values()])),
        false_onsets_min_off=float(np.mean([each[0] for each in false["off"].values()])),
        in_turns_pct=float(np.mean([each[1] for each in false["ours"].values()])),
        in_turns_pct_off=float(np.mean([each[1] for each in false["off"].values()])),
        wer_5db_change_pct=changes[5],
        wer_20db_change_pct=changes[20],
        us_per_frame=float(np.sum([row[1] for row in costs[:2]])),
        delay_ms=1000 * DELAY_S,
    )


if __name__ == "__main__":
    main()
