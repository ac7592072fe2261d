"""Speak the texts with one checkpoint and measure all that needs no listener."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from qwen3tts_engine.base import LoadedVoice
from qwen3tts_engine.qwen3.api import Qwen3TTS
from qwen3tts_engine.qwen3.voices.recording import read_reference
from tests.parity.inputs import RATE, voiced
from tests.regression.clicks import clicks_at, joint_error
from tests.regression.hearing import Generation, HeardRunner, listening
from tests.regression.measures import difference, level, order
from tests.regression.texts import DESCRIPTION, SPOKEN, TEXTS, Text

Samples = NDArray[np.float32]
SEED = 20_260
"""Of everything that is drawn."""
WHOLE = 1 << 25
"""Bytes of a file that count for a checkpoint's digest; a tiny one's are all of them."""
LSB = 1 / 32768
"""What is given out has 16 bits."""
BLOCK = RATE // 100
"""Samples whose level is judged together: 10 ms."""
AUDIBLE = 10 ** (-45 / 20)
"""Root mean square of a block that must not be left out: above both guards' thresholds."""


@dataclass(frozen=True)
class Subject:
    """What is tested."""

    model: str
    """Checkpoint folder or hub id."""
    reference: Path | None = None
    """Recording to clone; None: a made-up sound."""
    reference_text: str = SPOKEN
    repeats: int = 5
    """How often the first text is said for the time to first audio."""
    texts: Sequence[Text] = TEXTS
    settings: dict[str, Any] = field(default_factory=dict)
    """Further fields of Qwen3Settings."""


@dataclass(frozen=True)
class Heard:
    """One text, as it was given out, and the generations behind it."""

    sound: Samples
    generations: list[Generation]
    first_s: float
    """From asking to the first samples."""
    wall_s: float


class Speaker:
    """A loaded engine whose generations are recorded."""

    def __init__(self, subject: Subject) -> None:
        with listening() as runners:
            self.tts = Qwen3TTS.load(subject.model, warmup=True, **subject.settings)
        self.runner: HeardRunner = runners[0]
        self.task = self.runner.model.config.task
        self.voice: LoadedVoice | None = None
        self.reference: torch.Tensor | None = None
        if self.task == "base":
            self._clone(subject)

    def _clone(self, subject: Subject) -> None:
        audio: Path | tuple[Samples, int] = subject.reference or (voiced(3.0, 1), RATE)
        self.voice = self.tts.create_voice(audio, subject.reference_text)
        assert self.runner.model.codec_encoder is not None
        samples = torch.from_numpy(read_reference(audio))
        self.reference = self.runner.model.codec_encoder.encode(samples)

    def say(self, text: Text, seed: int = SEED) -> Heard:
        """Speak one text alone."""
        self.runner.heard.clear()
        sound, first_s, wall_s = self._stream(text, seed)
        return Heard(sound, list(self.runner.heard), first_s, wall_s)

    def say_together(self, texts: Sequence[Text]) -> list[Samples]:
        """Speak all texts at the same time, in one batch."""
        with ThreadPoolExecutor(len(texts)) as pool:
            return [sound for sound, _, _ in pool.map(lambda t: self._stream(t, SEED), texts)]

    def _stream(self, text: Text, seed: int) -> tuple[Samples, float, float]:
        start, first, pieces = time.perf_counter(), 0.0, []
        for samples, _ in self.tts.stream(
            text.text,
            voice=self.voice,
            language=text.language,
            instructions=DESCRIPTION if self.task == "voice_design" else None,
            seed=seed,
        ):
            first = first or time.perf_counter() - start
            pieces.append(samples)
        sound = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
        return sound, first, time.perf_counter() - start

    def offline(self, generation: Generation) -> Samples:
        """The sound of a generation's codes, decoded whole, behind the reference if any."""
        decoder = self.runner.model.decoder
        codes = torch.from_numpy(generation.codes).to(self.runner.model.device)
        if not generation.cloned or self.reference is None:
            return decoder.decode(codes).float().cpu().numpy()
        whole = decoder.decode(torch.cat([self.reference.to(codes.device), codes]))
        return whole[len(self.reference) * 1920 :].float().cpu().numpy()


Keep = Callable[[str, Samples, Samples, int], None]
"""Takes a text's name, its sound as streamed and as decoded whole, and the rate."""


def drop(_name: str, _stream: Samples, _offline: Samples, _rate: int) -> None:
    """Keep no sound."""


def run(subject: Subject, keep: Keep = drop) -> dict[str, Any]:
    """All measurements of one checkpoint."""
    speaker = Speaker(subject)
    try:
        said = [speaker.say(text) for text in subject.texts]
        texts = {
            text.name: measure(speaker, heard, partial(keep, text.name))
            for text, heard in zip(subject.texts, said, strict=True)
        }
        for text, heard in zip(subject.texts, said, strict=True):
            again = speaker.say(text)
            texts[text.name]["same_again"] = _codes(again) == _codes(heard)
        other = speaker.say(subject.texts[-1], SEED + 1)
        together = speaker.say_together(subject.texts)
        alike = [
            len(one) == len(heard.sound) and bool(np.abs(one - heard.sound).max() < 1e-3)
            for one, heard in zip(together, said, strict=True)
        ]
        first = [speaker.say(subject.texts[0]).first_s for _ in range(subject.repeats)]
        model = speaker.runner.model
        return {
            "task": speaker.task,
            "size": model.config.size,
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
            "codec_dtype": str(model.decoder.dtype).removeprefix("torch."),
            "digest": digest(Path(subject.model)),
            "texts": texts,
            "another_seed_differs": _codes(other) != _codes(said[-1]),
            "same_in_a_batch": sum(alike) / len(alike),
            "speed": speed(said, first),
        }
    finally:
        speaker.tts.close()


def speed(said: Sequence[Heard], first: Sequence[float]) -> dict[str, float]:
    """Times; one caller at a time."""
    audio = sum(len(heard.sound) for heard in said) / RATE
    return {
        "first_audio_ms_p50": float(np.percentile(first, 50)) * 1000,
        "first_audio_ms_p95": float(np.percentile(first, 95)) * 1000,
        "real_time_factor": sum(heard.wall_s for heard in said) / max(audio, 1e-9),
    }


def measure(
    speaker: Speaker, heard: Heard, keep: Callable[[Samples, Samples, int], None]
) -> dict[str, Any]:
    """One text: the stream beside the offline decode of the same codes, and what was given out."""
    streamed = [generation.sound for generation in heard.generations]
    wanted = [speaker.offline(generation) for generation in heard.generations]
    stream, offline = (np.concatenate(parts) for parts in (streamed, wanted))
    keep(stream, offline, RATE)
    starts = np.cumsum([0, *map(len, streamed)])[:-1]
    joints = np.concatenate(
        [start + g.joints for start, g in zip(starts, heard.generations, strict=True)]
    ).astype(np.int64)
    found, clicks = order(stream, offline), clicks_at(stream, joints)
    delivered = follow(heard.sound, streamed)
    return {
        "generations": len(heard.generations),
        "frames": sum(len(generation.codes) for generation in heard.generations),
        "codes": hashlib.sha256(_codes(heard)).hexdigest(),
        "difference": asdict(difference(stream, offline)),
        "order": asdict(found),
        "level": asdict(level(heard.sound)) | {"sane": level(heard.sound).sane},
        "clicks": asdict(clicks)
        | {
            # What the voice itself has at frames' borders is no click.
            "more_than_offline_sigma": clicks.excess_sigma
            - clicks_at(offline, joints).excess_sigma,
            "joint_error": joint_error(stream, offline, joints),
        },
        "delivered": delivered,
    }


def follow(sound: Samples, generations: Sequence[Samples]) -> dict[str, float]:
    """Where what was given out lies in what was made: nothing but silent ends may be left out."""
    at, lost_start, lost_end, loud = 0, 0, 0, 0
    for made in generations:
        lag = place_of(sound[at : at + 960], made)
        if lag is None:
            lost_start += len(made)
            loud += loud_blocks(made)
            continue
        length = min(len(made) - lag, len(sound) - at)
        off = np.abs(sound[at : at + length] - made[lag : lag + length]) > 2 * LSB
        count = int(np.argmax(off)) if off.any() else length
        lost_start, lost_end, at = lost_start + lag, lost_end + len(made) - lag - count, at + count
        loud += loud_blocks(made[:lag]) + loud_blocks(made[lag + count :])
    return {
        "trimmed_start_ms": lost_start * 1000 / RATE,
        "cut_end_ms": lost_end * 1000 / RATE,
        "loud_left_out_ms": loud * BLOCK * 1000 / RATE,
        "unexplained_samples": len(sound) - at,
    }


def loud_blocks(samples: Samples) -> int:
    """How many whole blocks of 10 ms could be heard: the guards leave out only what cannot."""
    whole = samples[: len(samples) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return int(np.count_nonzero(np.sqrt(np.mean(np.square(whole), axis=1)) > AUDIBLE))


def place_of(head: Samples, made: Samples) -> int | None:
    """Where ``made`` goes on as ``head`` begins; None: nowhere."""
    if not len(head) or len(made) < len(head):
        return None
    power = np.concatenate([[0.0], np.cumsum(made.astype(np.float64) ** 2)])
    energy = power[len(head) :] - power[: -len(head)]
    size = 1 << (len(made) + len(head)).bit_length()
    product = np.fft.irfft(np.fft.rfft(made, size) * np.fft.rfft(head[::-1], size), size)
    product = product[len(head) - 1 : len(made)]
    distance = energy + float((head.astype(np.float64) ** 2).sum()) - 2 * product
    best = int(np.argmin(distance))
    off = np.abs(head - made[best : best + len(head)])
    return best if off.max() <= 2 * LSB else None


def digest(folder: Path) -> str:
    """What tells one checkpoint from another: its files, of large ones the beginning."""
    made_from = hashlib.sha256()
    for name in ("config.json", "generation_config.json", "vocab.json", "model.safetensors"):
        for file in (folder / name, folder / "speech_tokenizer" / name):
            if file.is_file():
                with file.open("rb") as stream:
                    made_from.update(stream.read(WHOLE))
    return made_from.hexdigest()[:16]


def _codes(heard: Heard) -> bytes:
    return b"|".join(generation.codes.tobytes() for generation in heard.generations)
