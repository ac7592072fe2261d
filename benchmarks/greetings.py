"""Greetings of people and answering machines, spoken by eSpeak, on a phone line.

A case is what a caller hears from the answer on: a pause, the greeting, what follows it, the noise
of the line, a beep where there is one; coded as PCMU at a level from loud to faint. There are two
disjoint sets, *tuning* and *held out*: other words, other voices, other noise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3tts_codecs.g711 import decode_ulaw, encode_ulaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, SynthesisRequest
from qwen3tts_engine.embedded.engine import EmbeddedEngine, EmbeddedSettings

RATE_HZ = 8000
Sound = NDArray[np.float64]
Texts = dict[str, tuple[str, ...]]

HUMANS: dict[str, Texts] = {
    "tuning": {
        "en-us": (
            *(
                "Hello?",
                "Yes?",
                "Hello, this is Anna.",
                "Miller speaking.",
                "Hi.",
                "Who's calling?",
            ),
            "Good morning, Baker and Sons.",
            "Front desk, Peter speaking, how may I help you?",
        ),
        "de": ("Ja bitte?", "Müller.", "Hallo?", "Schneider, guten Tag.", "Praxis Doktor Weber."),
        "fr-fr": ("Allô?", "Oui, bonjour.", "Allô, qui est à l'appareil?"),
        "es": ("¿Diga?", "Hola, buenos días.", "¿Sí, quién es?"),
    },
    "held out": {
        "en-gb": (
            *(
                "Hello.",
                "Yeah?",
                "Hello, Tom here.",
                "Good afternoon.",
                "Who is this?",
                "Speaking.",
            ),
            "Hi, you're talking to Rachel.",
            "Green Garden Flowers, this is Mary, what can I do for you?",
        ),
        "de": ("Ja?", "Becker, hallo?", "Guten Tag.", "Autohaus König, mein Name ist Lang."),
        "fr-be": ("Oui?", "Allô, bonjour.", "Cabinet dentaire, bonjour."),
        "es-419": ("¿Bueno?", "Hola, habla Carmen.", "Sí, dígame."),
        "it": ("Pronto?", "Pronto, chi parla?"),
    },
}
MACHINES: dict[str, Texts] = {
    "tuning": {
        "en-us": (
            "Hi, you've reached Anna. I can't come to the phone right now. Please leave a message.",
            "The person you have called is not available. Please leave a message after the tone.",
            "Hello! | This is the voice mail of Peter Baker. Leave your number after the beep.",
            "Your call has been forwarded to an automatic voice message system.",
            "Thank you for calling Baker and Sons. Our office is closed. We open again at nine.",
        ),
        "de": (
            "Guten Tag, Sie sind verbunden mit dem Anschluss von Müller. Wir sind nicht zu Hause.",
            "Der gewünschte Gesprächspartner ist zurzeit nicht erreichbar. Sprechen Sie jetzt.",
        ),
        "fr-fr": (
            "Bonjour, vous êtes bien chez Claire. Laissez un message après le bip sonore.",
            "Votre correspondant n'est pas joignable. Merci de laisser un message.",
        ),
        "es": ("Hola, ahora no puedo atenderle. Deje su mensaje después de la señal.",),
    },
    "held out": {
        "en-gb": (
            "You have reached the mailbox of Tom Green. Please record your message after the tone.",
            "Nobody is here to take your call. Speak after the beep, we will ring you back.",
            "Hello. | I am on holiday until the third of May. In urgent matters please write.",
            "We are sorry, the customer you are calling cannot take your call. Please try later.",
            "Hey, it's Rachel. You know what to do, so wait for the beep.",
        ),
        "de": (
            "Hier ist die Mailbox von Jonas Becker. Bitte hinterlassen Sie mir eine Nachricht.",
            "Sie rufen außerhalb unserer Geschäftszeiten an. Bitte versuchen Sie es morgen wieder.",
        ),
        "fr-be": ("Nous ne sommes pas là pour le moment. Parlez après le signal, merci.",),
        "es-419": (
            "Usted se ha comunicado con el buzón de Carmen. Grabe su mensaje al oír el tono.",
        ),
        "it": (
            "Risponde la segreteria telefonica. Lasciate un messaggio dopo il segnale acustico.",
        ),
    },
}
VARIANTS = {"tuning": ("f1", "f3", "m1", "m3", "m7"), "held out": ("f2", "f4", "f5", "m2", "m4")}
"""Variants of the voices. ``|`` in a text is a pause of 0.4 to 1.1 s."""


@dataclass(frozen=True)
class Case:
    """One call from the answer on."""

    kind: str
    """``human``, ``machine`` or ``silence``."""
    samples: NDArray[np.int16]
    beeps: tuple[tuple[float, float], ...] = ()
    """Begin and end of each beep, seconds."""
    about: str = ""
    speech_s: float = 0.0


@dataclass
class Voices:
    """Audio of eSpeak, at 8 kHz and full scale 1, kept by text and voice."""

    said: dict[tuple[str, str, float], Sound] = field(default_factory=dict)

    async def say(self, wanted: Sequence[tuple[str, str, float]]) -> None:
        """Make what is not there yet; (text, voice, speed) each."""
        engine = EmbeddedEngine(EmbeddedSettings(workers=2))
        await engine.start()
        try:
            for key in wanted:
                if key not in self.said:
                    text, voice, speed = key
                    request = SynthesisRequest(text, voice=voice, speed=speed)
                    pcm = b"".join([chunk.pcm async for chunk in engine.synthesize(request)])
                    narrow = Resampler(SAMPLE_RATE, RATE_HZ, aligned=True)
                    samples = np.frombuffer(pcm, "<i2")
                    sound = np.concatenate([narrow.push(samples), narrow.flush()]) / 32768.0
                    self.said[key] = _trimmed(sound)
        finally:
            await engine.close()


def _trimmed(sound: Sound) -> Sound:
    loud = np.flatnonzero(np.abs(sound) > 0.005)
    return sound[loud[0] : loud[-1] + 1] if len(loud) else sound


def quiet(seconds: float) -> Sound:
    """Nothing."""
    return np.zeros(max(0, round(seconds * RATE_HZ)))


def tone(hz: float | tuple[float, ...], seconds: float, level: float = 0.25) -> Sound:
    """One tone, or several together, with edges of 4 ms."""
    at = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    each = (hz,) if isinstance(hz, float | int) else hz
    wave = sum(np.sin(2 * np.pi * one * at) for one in each) * level / len(each)
    edge = min(len(at) // 2, 32)
    ramp = np.linspace(0, 1, edge)
    shape = np.ones(len(at))
    shape[:edge], shape[len(at) - edge :] = ramp, ramp[::-1]
    return np.asarray(wave * shape)


def line(sound: Sound, chance: np.random.Generator, babble: Sound) -> NDArray[np.int16]:
    """The sound as it comes from the line: level, noise, the telephone's band, mu-law."""
    voiced = sound[np.abs(sound) > 0.01]
    rms = float(np.sqrt(np.mean(voiced**2))) if len(voiced) else 0.1
    level = 10 ** (chance.uniform(-32.0, -14.0) / 20)
    snr_db = chance.uniform(12.0, 40.0)
    kind = chance.integers(4)
    noise = chance.normal(size=len(sound))
    if kind == 1:  # traffic: mostly low
        noise = np.convolve(noise, np.ones(8) / 8, mode="same")
    elif kind == 2:  # people in the room
        start = int(chance.integers(len(babble) - len(sound)))
        noise = babble[start : start + len(sound)] + 0.05 * noise
    elif kind == 3:  # mains hum
        noise = 0.3 * noise + np.sin(2 * np.pi * 150 * np.arange(len(sound)) / RATE_HZ)
    noise *= level * 10 ** (-snr_db / 20) / float(np.sqrt(np.mean(noise**2)))
    mixed = np.clip(sound / rms * level + noise, -1, 1) * 32767
    pcm: NDArray[np.int16] = decode_ulaw(encode_ulaw(np.rint(mixed).astype(np.int16)))
    return pcm


BEEPS: tuple[tuple[str, tuple[tuple[float | tuple[float, ...], float, float], ...]], ...] = (
    ("1000 Hz 0.5 s", ((1000.0, 0.5, 0.0),)),
    ("1400 Hz 0.2 s", ((1400.0, 0.2, 0.0),)),
    ("440 Hz 1.0 s", ((440.0, 1.0, 0.0),)),
    ("850 Hz 0.1 s", ((850.0, 0.1, 0.0),)),
    ("2000 Hz 0.3 s", ((2000.0, 0.3, 0.0),)),
    ("620 Hz 0.08 s", ((620.0, 0.08, 0.0),)),
    ("425 Hz 0.4 s", ((425.0, 0.4, 0.0),)),
    ("1000+1333 Hz 0.4 s", (((1000.0, 1333.0), 0.4, 0.0),)),
    ("1100 Hz 0.5 s", ((1100.0, 0.5, 0.0),)),
    ("950 Hz twice 0.15 s", ((950.0, 0.15, 0.12), (950.0, 0.15, 0.0))),
)
"""Name, and its parts: frequency, length, pause after it."""


def beep_sound(parts: Sequence[tuple[Any, float, float]], level: float) -> Sound:
    """The sound of one of `BEEPS`."""
    return np.concatenate([np.concatenate([tone(h, s, level), quiet(p)]) for h, s, p in parts])


async def build(
    group: str, count: int, seed: int
) -> tuple[list[Case], list[NDArray[np.int16]], Sound]:
    """``count`` cases of each kind; sound without any beep; and the babble of the room."""
    chance = np.random.default_rng(seed)
    variants = VARIANTS[group]

    def key(text: str, language: str) -> tuple[str, str, float]:
        speed = (0.85, 1.0, 1.17)[int(chance.integers(3))]
        return text, f"{language}+{variants[int(chance.integers(len(variants)))]}", speed

    def draw(texts: Texts) -> list[list[tuple[str, str, float]]]:
        pool = [(language, text) for language, lines in texts.items() for text in lines]
        chosen = []
        for number in range(count):
            language, text = pool[number % len(pool)]
            _, voice, speed = key(text, language)
            chosen.append([(part.strip(), voice, speed) for part in text.split("|")])
        return chosen

    people, machines = draw(HUMANS[group]), draw(MACHINES[group])
    again = [
        [("Hello?" if "en" in parts[0][1] else parts[0][0], *parts[0][1:])] for parts in people
    ]
    voices = Voices()
    await voices.say([one for parts in (*people, *machines, *again) for one in parts])
    babble = _babble(voices, chance)
    cases = [
        *(_human(voices, p, a, chance, babble) for p, a in zip(people, again, strict=True)),
        *(_machine(voices, p, n, chance, babble) for n, p in enumerate(machines)),
        *(
            Case("silence", line(quiet(6.0), chance, babble), about="nobody speaks")
            for _ in range(max(1, count // 5))
        ),
    ]
    plain = [
        line(voices.said[one], chance, babble) for parts in (*people, *machines) for one in parts
    ]
    return cases, plain, babble


def _babble(voices: Voices, chance: np.random.Generator) -> Sound:
    """Six voices together, 60 s."""
    length = 60 * RATE_HZ
    total = np.zeros(length)
    sounds = list(voices.said.values())
    for _ in range(6):
        stream = np.concatenate([sounds[int(at)] for at in chance.permutation(len(sounds))])
        total += np.resize(stream, length)
    return total / 6


def _human(
    voices: Voices, parts: Any, again: Any, chance: np.random.Generator, babble: Sound
) -> Case:
    greeting = voices.said[parts[0]]
    sound = [
        quiet(float(chance.uniform(0.1, 1.8))),
        greeting,
        quiet(float(chance.uniform(1.5, 3.0))),
    ]
    if chance.random() < 0.5:  # no answer: once more
        sound += [voices.said[again[0]], quiet(2.0)]
    whole = np.concatenate([*sound, quiet(1.0)])
    return Case("human", line(whole, chance, babble), (), parts[0][0], len(greeting) / RATE_HZ)


def _machine(
    voices: Voices, parts: Any, number: int, chance: np.random.Generator, babble: Sound
) -> Case:
    sound = [quiet(float(chance.uniform(0.2, 1.5)))]
    for index, part in enumerate(parts):
        if index:
            sound.append(quiet(float(chance.uniform(0.4, 1.1))))
        sound.append(voices.said[part])
    speech_s = sum(len(voices.said[part]) for part in parts) / RATE_HZ
    beeps: tuple[tuple[float, float], ...] = ()
    about = "no beep"
    if number % 6 != 5:
        about, pieces = BEEPS[int(chance.integers(len(BEEPS)))]
        sound.append(quiet(float(chance.uniform(0.05, 1.5))))
        begins = sum(map(len, sound)) / RATE_HZ
        beep = beep_sound(pieces, float(chance.uniform(0.05, 0.3)))
        beeps = ((begins, begins + len(beep) / RATE_HZ),)
        sound.append(beep)
    sound.append(quiet(4.0))
    return Case("machine", line(np.concatenate(sound), chance, babble), beeps, about, speech_s)


def melodies(count: int, seed: int) -> list[NDArray[np.int16]]:
    """Music on hold: notes with and without overtones, joined or apart; no beep among them."""
    chance = np.random.default_rng(seed)
    scale = 440.0 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16]) / 12)
    found = []
    for number in range(count):
        notes = []
        overtones = 1 if number % 3 == 0 else int(chance.integers(2, 6))
        apart = number % 2 == 0
        for _ in range(40):
            hz, seconds = float(chance.choice(scale)), float(chance.choice([0.15, 0.25, 0.5]))
            parts = [tone(hz * (k + 1), seconds, 0.2 / (k + 1)) for k in range(overtones)]
            note = np.sum(parts, axis=0)
            if number % 3 == 2:  # plucked
                note = note * np.exp(-np.arange(len(note)) / RATE_HZ / 0.15)
            notes.append(note)
            if apart:
                notes.append(quiet(0.05))
        whole = np.concatenate(notes)
        noise = chance.normal(size=len(whole)) * 0.002
        found.append(np.rint((whole + noise) * 20000).astype(np.int16))
    return found


def run(group: str, count: int, seed: int) -> tuple[list[Case], list[NDArray[np.int16]], Sound]:
    """`build`, from a program without a loop."""
    return asyncio.run(build(group, count, seed))
