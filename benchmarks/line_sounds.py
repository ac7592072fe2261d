"""Telephone sound for benchmarks and tests: speech, noises, levels, mu-law, and an echo's path.

    said = asyncio.run(speech(["Hello, who is there?"]))[0]      # float, 8 kHz, full scale 1
    heard = on_the_line(mix(at_level(said, -26), noise("babble", ...), snr_db=15))   # int16

Levels are those of active speech, dB of full scale: the power of the 20 ms frames that are no
pause (as in ITU-T P.56, whose margin of 15.9 dB is used). All is at 8 kHz and drawn from a
generator that is given: the same again with the same seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from greetings import RATE_HZ, Sound, Voices
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw

Samples = NDArray[np.int16]

FRAME: Final = RATE_HZ // 50
MARGIN_DB: Final = 15.9
VOICES: Final = (
    *("en-us+f1", "en-us+m1", "en-gb+f2", "en-gb+m3", "en-us+m7", "en-us+f4"),
    *("de+f3", "de+m2", "fr-fr+f5", "fr-fr+m4", "es+f2", "es-419+m3", "it+f1", "it+m5"),
)
TEXTS: Final = {
    "en": (
        "Hello, I would like to know when my parcel will arrive.",
        "No, wait, that is not what I meant.",
        "Yes.",
        "Could you say that again, please?",
        "My number is seven four, double nine, three one.",
        "Stop.",
        "Well, I was thinking about Thursday, or perhaps on Friday in the afternoon.",
        "Excuse me.",
        "The invoice that you have sent me is from last year.",
        "Hold on a moment.",
    ),
    "de": (
        "Guten Tag, ich möchte einen Termin verschieben.",
        "Nein, das stimmt nicht.",
        "Moment bitte.",
        "Können Sie das noch einmal wiederholen?",
    ),
    "fr": ("Bonjour, je voudrais changer mon rendez-vous.", "Attendez.", "Non, pas celui-là."),
    "es": ("Buenos días, quería hablar con el señor García.", "Espere un momento.", "No, no."),
    "it": ("Pronto, vorrei sapere quando arriva il pacco.", "Scusi, un attimo.", "Sì, grazie."),
}
NOISES: Final = (
    *("white", "pink", "babble", "street", "hum", "music", "keys", "coughs", "clicks", "ringing"),
)
"""Kinds of `noise`."""


async def speech(texts: Sequence[str], voice: str = "en-us+f1", speed: float = 1.0) -> list[Sound]:
    """The speech of eSpeak without silence before and after it, in the telephone's band."""
    voices = Voices()
    await voices.say([(text, voice, speed) for text in texts])
    return [band(voices.said[text, voice, speed]) for text in texts]


async def callers(count: int, chance: np.random.Generator) -> list[Sound]:
    """``count`` utterances in many voices, languages and speeds."""
    wanted = []
    for number in range(count):
        voice = VOICES[number % len(VOICES)]
        texts = TEXTS[voice[:2]]
        text = texts[int(chance.integers(len(texts)))]
        wanted.append((text, voice, (0.85, 1.0, 1.2)[int(chance.integers(3))]))
    voices = Voices()
    await voices.say(wanted)
    return [band(voices.said[one]) for one in wanted]


def babble_of(sounds: Sequence[Sound], seconds: float, chance: np.random.Generator) -> Sound:
    """Eight people together, out of these utterances."""
    length = round(seconds * RATE_HZ)
    total = np.zeros(length)
    for _ in range(8):
        order = chance.permutation(len(sounds))
        stream = np.concatenate([sounds[int(at)] for at in order])
        total += np.resize(np.roll(stream, int(chance.integers(len(stream)))), length)
    return total / 8


def band(sound: Sound) -> Sound:
    """300 to 3400 Hz: 193 taps, 40 dB down at 150 and 3550 Hz."""
    return np.convolve(sound, _band_taps(), mode="same") if len(sound) else sound


def level_of(sound: Sound) -> float:
    """Level of the active speech in it, dB of full scale."""
    power = _powers(sound, FRAME)
    if not len(power) or power.max() <= 0:
        return -120.0
    active = power
    for _ in range(5):
        active = power[power > active.mean() * 10 ** (-MARGIN_DB / 10)]
    return 10 * float(np.log10(active.mean()))


def at_level(sound: Sound, dbfs: float) -> Sound:
    """The same, so loud."""
    return sound * 10 ** ((dbfs - level_of(sound)) / 20)


def voiced_from_to(sound: Sound, below_db: float = 20.0) -> tuple[int, int]:
    """First and last sample not ``below_db`` below a clean utterance's level.

    Its beginning and end to a listener; in steps of 5 ms.
    """
    step = RATE_HZ // 200
    power = _powers(sound, step)
    loud = np.flatnonzero(10 * np.log10(power + 1e-12) > level_of(sound) - below_db)
    return (int(loud[0]) * step, (int(loud[-1]) + 1) * step) if len(loud) else (0, 0)


def noise(
    kind: str, seconds: float, chance: np.random.Generator, babble: Sound | None = None
) -> Sound:
    """Noise of a kind of `NOISES`, mean power 1 where it sounds all the time; else its sounds'."""
    length = round(seconds * RATE_HZ)
    time = np.arange(length) / RATE_HZ
    match kind:
        case "white":
            made = chance.normal(size=length)
        case "pink":
            made = _shaped(chance, length, 0.5)
        case "street":  # low, swelling, as cars pass
            swell = np.interp(
                time,
                np.arange(0, seconds + 3, 1.5),
                chance.uniform(0.15, 1.0, len(np.arange(0, seconds + 3, 1.5))),
            )
            made = _shaped(chance, length, 0.9) * swell
        case "hum":
            made = sum(
                (np.sin(2 * np.pi * 50 * k * time + k) / k for k in (1, 2, 3, 5, 6, 7)),
                0.02 * chance.normal(size=length),
            )
        case "babble":
            assert babble is not None
            start = int(chance.integers(len(babble) - length))
            made = babble[start : start + length].copy()
        case "music":
            made = _music(length, chance)
        case "keys":
            made = _keys(length, chance)
        case "coughs":
            made = _bursts(length, chance, (0.12, 0.35), (1.5, 4.0), 0.7)
        case "clicks":
            made = _bursts(length, chance, (0.001, 0.008), (0.2, 1.5), 0.0)
        case "ringing":
            on = (time % 3.0) < 1.0
            made = on * (np.sin(2 * np.pi * 440 * time) + np.sin(2 * np.pi * 480 * time))
        case _:
            raise ValueError(f"{kind!r} is none of {', '.join(NOISES)}")
    made = band(made)
    loud = made[np.abs(made) > 0.05 * np.abs(made).max()]
    return made / float(np.sqrt(np.mean(loud**2)))


def mix(sound: Sound, noises: Sound, snr_db: float, level_dbfs: float | None = None) -> Sound:
    """Speech and noise of power 1; ``level_dbfs``: the speech's, where it is known."""
    level = level_of(sound) if level_dbfs is None else level_dbfs
    return sound + noises[: len(sound)] * 10 ** ((level - snr_db) / 20)


def on_the_line(sound: Sound) -> Samples:
    """Through G.711 mu-law and back."""
    pcm = np.rint(np.clip(sound, -1, 1) * 32767).astype(np.int16)
    return decode_ulaw(encode_ulaw(pcm))


@dataclass
class EchoPath:
    """Echo of sent audio: a hybrid's response, dB below and seconds later.

    ``push`` takes sent samples (int16) in order and returns as many of the echo. ``coded``: it
    passes through mu-law once more. ``room_ms``: a loudspeaker telephone's, with a decaying tail.
    """

    down_db: float = 20.0
    delay_ms: float = 100.0
    coded: bool = True
    room_ms: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        chance = np.random.default_rng(self.seed)
        if self.room_ms:
            count = round(3 * self.room_ms * RATE_HZ / 1000)
            taps = chance.normal(size=count) * np.exp(-np.arange(count) / (count / 5))
            taps[0] = 2.0
        else:  # dispersion of some ms, as of G.168's hybrids
            at = np.arange(48)
            taps = np.exp(-at / 8.0) * np.cos(2 * np.pi * at * (0.09 + 0.05 * chance.random()))
            taps += 0.15 * chance.normal(size=48) * np.exp(-at / 14.0)
        taps /= float(np.sqrt(np.mean(np.abs(np.fft.rfft(taps, 4096)[154:1741]) ** 2)))
        self._taps = taps * 10 ** (-self.down_db / 20)
        delay = round(self.delay_ms * RATE_HZ / 1000)
        self._held = np.zeros(delay + len(taps) - 1)

    def push(self, samples: Samples) -> Samples:
        """The echo that comes while these go out, shape [n] each."""
        line = np.concatenate((self._held, samples / 32768.0))
        self._held = line[len(samples) :]
        echo = np.convolve(line[: len(samples) + len(self._taps) - 1], self._taps, mode="valid")
        return on_the_line(echo) if self.coded else np.rint(echo * 32767).astype(np.int16)


# --- inside


def _powers(sound: Sound, step: int) -> NDArray[np.float64]:
    count = len(sound) // step
    power: NDArray[np.float64] = np.mean(sound[: count * step].reshape(count, step) ** 2, axis=1)
    return power


def _band_taps() -> Sound:
    at = np.arange(-96, 97)
    high, low = 2 * 3400 / RATE_HZ, 2 * 300 / RATE_HZ
    taps: Sound = (high * np.sinc(high * at) - low * np.sinc(low * at)) * np.kaiser(193, 5.0)
    return taps


def _shaped(chance: np.random.Generator, length: int, slope: float) -> Sound:
    """Noise whose amplitude falls with the frequency to the power of ``slope``."""
    spectrum = np.fft.rfft(chance.normal(size=length))
    hz = np.fft.rfftfreq(length, 1 / RATE_HZ)
    spectrum *= (np.maximum(hz, 50.0) / 1000) ** -slope
    return np.fft.irfft(spectrum, length)


def _music(length: int, chance: np.random.Generator) -> Sound:
    scale = 220.0 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16, 19]) / 12)
    made = np.zeros(length)
    at = 0
    while at < length:
        count = round(float(chance.choice([0.15, 0.25, 0.5])) * RATE_HZ)
        time = np.arange(min(2 * count, length - at)) / RATE_HZ
        for hz in chance.choice(scale, 2, replace=False):
            for overtone in range(1, 5):
                wave = np.sin(2 * np.pi * hz * overtone * time) / overtone**1.5
                made[at : at + len(time)] += wave * np.exp(-time / 0.3) * np.minimum(time / 0.01, 1)
        at += count
    return made


def _keys(length: int, chance: np.random.Generator) -> Sound:
    """Keypress tones (ITU-T Q.23), 80 to 200 ms each."""
    made = np.zeros(length)
    at = 0
    while at < length:
        count = round(chance.uniform(0.08, 0.2) * RATE_HZ)
        time = np.arange(min(count, length - at)) / RATE_HZ
        for group in ((697, 770, 852, 941), (1209, 1336, 1477)):
            made[at : at + len(time)] += np.sin(2 * np.pi * float(chance.choice(group)) * time)
        at += count + round(chance.uniform(0.06, 0.5) * RATE_HZ)
    return made


def _bursts(
    length: int,
    chance: np.random.Generator,
    lasts_s: tuple[float, float],
    apart_s: tuple[float, float],
    low: float,
) -> Sound:
    """Bursts of noise that rise in some ms and fall slowly: coughs; very short ones: clicks."""
    made = np.zeros(length)
    at = round(chance.uniform(*apart_s) * RATE_HZ)
    while at < length:
        count = min(max(4, round(chance.uniform(*lasts_s) * RATE_HZ)), length - at)
        burst = _shaped(chance, max(count, 64), low)[:count]
        burst *= np.minimum(np.arange(count) / (0.1 * count + 1), 1) * np.exp(
            -np.arange(count) / (0.4 * count)
        )
        made[at : at + count] += burst / (np.abs(burst).max() + 1e-9)
        at += count + round(chance.uniform(*apart_s) * RATE_HZ)
    return made
