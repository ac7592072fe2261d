"""Sounds of simulated callers: synthesised or recorded once, at a level, and noise by a seed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.resample import Resampler
from qwen3tts_codecs.wav import DamagedWav, NotWav, WavFile
from qwen3tts_rehearsal.scenario import NoiseKind
from qwen3tts_settings.entries import BadConfiguration
from qwen3tts_wire.errors import BadText

Samples = NDArray[np.int16]
Sound = NDArray[np.float64]
"""Linear, full scale 1, shape [n]."""
Synthesise = Callable[[str, str, str], Awaitable[tuple[Samples, int]]]
"""Function of text, voice (empty = the language's default) and language: samples and rate in Hz."""

BLOCK_S = 0.005
MARGIN_DB = 15.9
"""Frames this far below the mean of the active ones are pauses (ITU-T P.56)."""
VOICED_DB = 25.0
"""Blocks less than this below the active level are voiced: beginning and end to a listener."""
NOISE_S = 20.0
"""Length of the noise, which is repeated."""
MAX_RECORDING_S = 300.0
TALKERS = 8
"""Voices of babble."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something that the caller says, at the rate of the call."""

    samples: Samples
    voiced: tuple[int, int]
    """First voiced sample, and the one after the last."""
    text: str


class SoundBook:
    """Sounds of a rehearsal by their content, each made once."""

    def __init__(self, synthesise: Synthesise) -> None:
        self._synthesise = synthesise
        self._made: dict[tuple[str, ...], asyncio.Future[tuple[Sound, int]]] = {}

    async def text(self, text: str, voice: str, language: str) -> tuple[Sound, int]:
        """Return a text's sound and rate. Raises SpeechError."""
        key = ("text", text, voice, language)
        return await self._once(key, lambda: self._said(text, voice, language))

    async def recording(self, path: Path) -> tuple[Sound, int]:
        """Return a WAV file's sound and rate. Raises BadConfiguration."""
        return await self._once(("file", str(path)), lambda: asyncio.to_thread(read_wav, path))

    async def _once(
        self, key: tuple[str, ...], make: Callable[[], Awaitable[tuple[Sound, int]]]
    ) -> tuple[Sound, int]:
        if key not in self._made:
            self._made[key] = asyncio.ensure_future(make())
        return await asyncio.shield(self._made[key])

    async def _said(self, text: str, voice: str, language: str) -> tuple[Sound, int]:
        samples, rate_hz = await self._synthesise(text, voice, language)
        if not len(samples) or not np.any(samples):
            raise BadText(
                f"The voice made no sound of {text[:60]!r}.", remedy="Give a text that is spoken."
            )
        return trimmed(samples / 32768.0, rate_hz), rate_hz


def read_wav(path: Path) -> tuple[Sound, int]:
    """Read a WAV file as one channel. Raises BadConfiguration."""
    try:
        wav = WavFile.parse(path.read_bytes())
        samples = wav.mono() / 32768.0
    except (OSError, NotWav, DamagedWav) as error:
        reason = str(error) or "it is no WAV file"
        raise BadConfiguration(
            f"The recording {path} cannot be used: {reason}.", remedy="Give a WAV file of PCM."
        ) from error
    if not np.any(samples) or wav.seconds > MAX_RECORDING_S:
        what = "is silent" if not np.any(samples) else f"is longer than {MAX_RECORDING_S:g} s"
        raise BadConfiguration(f"The recording {path} {what}.", remedy="Give another one.")
    return samples, wav.rate


def resampled(sound: Sound, from_hz: int, to_hz: int) -> Sound:
    if from_hz == to_hz:
        return sound
    pcm = np.rint(np.clip(sound, -1.0, 1.0) * 32767).astype(np.int16)
    resampler = Resampler(from_hz, to_hz, aligned=True)
    made: Sound = np.concatenate((resampler.push(pcm), resampler.flush())) / 32768.0
    return made


def level_dbfs(sound: Sound, rate_hz: int) -> float:
    """Return the level of the active speech, dB of full scale (as ITU-T P.56)."""
    power = _powers(sound, round(0.02 * rate_hz))
    if not len(power) or power.max() <= 0.0:
        return -120.0
    active = power
    for _ in range(5):
        active = power[power > active.mean() * 10 ** (-MARGIN_DB / 10)]
    return 10.0 * float(np.log10(active.mean()))


def at_level(sound: Sound, rate_hz: int, dbfs: float) -> Sound:
    return sound * 10 ** ((dbfs - level_dbfs(sound, rate_hz)) / 20)


def voiced_range(sound: Sound, rate_hz: int) -> tuple[int, int]:
    """Return the first voiced sample, and the one after the last, in steps of 5 ms."""
    step = round(BLOCK_S * rate_hz)
    power = _powers(sound, step)
    if not len(power):
        return 0, len(sound)
    floor = level_dbfs(sound, rate_hz) - VOICED_DB
    loud = np.flatnonzero(10 * np.log10(power + 1e-12) > floor)
    return (int(loud[0]) * step, (int(loud[-1]) + 1) * step) if len(loud) else (0, len(sound))


def trimmed(sound: Sound, rate_hz: int, around_s: float = 0.02) -> Sound:
    first, last = voiced_range(sound, rate_hz)
    around = round(around_s * rate_hz)
    return sound[max(0, first - around) : last + around]


def joined(parts: Sequence[Sound | float], rate_hz: int) -> Sound:
    """Join sounds and pauses (seconds)."""
    made = [
        np.zeros(round(part * rate_hz)) if isinstance(part, (int, float)) else part
        for part in parts
    ]
    return np.concatenate(made)


def utterance(sound: Sound, rate_hz: int, dbfs: float, text: str) -> Utterance:
    loud = at_level(sound, rate_hz, dbfs)
    return Utterance(to_samples(loud), voiced_range(loud, rate_hz), text)


def to_samples(sound: Sound) -> Samples:
    return np.rint(np.clip(sound, -1.0, 1.0) * 32767).astype(np.int16)


def noise(
    kind: NoiseKind, rate_hz: int, dbfs: float, seed: int, speech: Sequence[Sound] = ()
) -> Samples:
    """Return `NOISE_S` of noise at this level, which may be repeated; none: shape [0].

    ``speech``: sounds that babble is made of, reversed, so that no word is left of them.
    """
    if kind == "none":
        return np.zeros(0, np.int16)
    chance = np.random.default_rng(seed)
    length = round(NOISE_S * rate_hz)
    at_s = np.arange(length) / rate_hz
    match kind:
        case "white":
            made = chance.normal(size=length)
        case "street":  # low, swelling, as cars pass
            points = np.linspace(0.0, NOISE_S, 14)
            swell = np.interp(at_s, points, chance.uniform(0.15, 1.0, len(points)))
            made = _shaped(chance, length, rate_hz) * swell
        case "hum":
            made = 0.02 * chance.normal(size=length)
            for part in (1, 2, 3, 5, 6, 7):
                made += np.sin(2 * np.pi * 50 * part * at_s + part) / part
        case _:
            made = _babble(speech, length, chance)
    made *= 10 ** (dbfs / 20) / max(1e-9, float(np.sqrt(np.mean(made**2))))
    return to_samples(made)


def _babble(speech: Sequence[Sound], length: int, chance: np.random.Generator) -> Sound:
    whole = np.concatenate([*speech]) if speech else chance.normal(size=length)
    made = np.zeros(length)
    for _ in range(TALKERS):
        speed = chance.uniform(0.85, 1.2)
        at = np.arange(0.0, len(whole) - 1.0, speed)
        talker = np.interp(at, np.arange(len(whole)), whole[::-1])
        made += np.resize(np.roll(talker, int(chance.integers(len(talker)))), length)
    return made


def _shaped(chance: np.random.Generator, length: int, rate_hz: int) -> Sound:
    spectrum = np.fft.rfft(chance.normal(size=length))
    hz = np.fft.rfftfreq(length, 1 / rate_hz)
    return np.fft.irfft(spectrum * (np.maximum(hz, 80.0) / 1000) ** -0.9, length)


def _powers(sound: Sound, step: int) -> Sound:
    count = len(sound) // step
    power: Sound = np.mean(sound[: count * step].reshape(count, step) ** 2, axis=1)
    return power
