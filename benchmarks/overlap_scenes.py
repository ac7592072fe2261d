"""Callers who speak over an agent: what they say, how it sounds, and the call it happens on.

Backchannels ("mhm", "d'accord") are eSpeak's, in six languages, and in English the natural voice's
too: no recording of people who say them was found. Interruptions are prompts recorded by people
(recorded_prompts.py) in five languages, short ("One moment, please.") and long, and eSpeak's
commands ("Stop."). The agent (eSpeak, -20 dBFS) speaks when the caller begins.
"""

from __future__ import annotations

import asyncio
import wave
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
from greetings import RATE_HZ, Sound, Voices
from line_sounds import FRAME, EchoPath, Samples, at_level, band, on_the_line, voiced_from_to
from recorded_prompts import prompts, sounds

from qwen3tts_codecs.resample import Resampler
from qwen3tts_engine.base import SAMPLE_RATE, Engine, SynthesisRequest
from qwen3tts_engine.piper.engine import PiperEngine
from qwen3tts_pacer.gain import DUCK_DB
from qwen3tts_phone.audio.frames import HeardFrame, KeyPressed, SentAudio, SentFrame
from qwen3tts_phone.facts import CallFacts
from qwen3tts_speech.line import Saying
from qwen3tts_speech.utterance import Utterance
from tests.fakes import FakeClock

LEVELS = (-16.0, -22.0, -28.0, -34.0)
AGENT_DBFS = -20.0
FRAME_S = FRAME / RATE_HZ
WAY_S = 0.013
"""From a frame's last sample to its arrival."""
DELAYS_MS = (0.0, 60.0, 180.0, 400.0)
ECHO_DB = 20.0
AFTER_S = 3.0
"""The call goes on after the caller's last sound."""
AGENT_TEXT = (
    "Your parcel has left the warehouse this morning, and it will arrive tomorrow before noon.",
    "The driver calls before he comes, and you can follow him on the map that we have sent you.",
)
BACKCHANNELS = {
    "en": ("Mm-hmm.", "Uh-huh.", "Yeah.", "Okay.", "Right.", "I see.", "Yes.", "Sure.", "Got it."),
    "de": ("Mhm.", "Ja.", "Genau.", "Okay.", "Ach so.", "Verstehe.", "Alles klar."),
    "fr": ("Oui.", "D'accord.", "Okay.", "Je vois.", "Très bien.", "Mhm."),
    "es": ("Sí.", "Vale.", "Claro.", "Entiendo.", "De acuerdo.", "Mhm."),
    "it": ("Sì.", "Va bene.", "Certo.", "Ho capito.", "Esatto.", "Mhm."),
    "ru": ("Да.", "Угу.", "Понятно.", "Хорошо.", "Ясно."),  # noqa: RUF001
}
COMMANDS = {
    "en": ("Stop.", "Wait.", "No.", "Hold on.", "What?"),
    "de": ("Stopp.", "Warten Sie.", "Nein.", "Moment.", "Wie bitte?"),
    "fr": ("Attendez.", "Non.", "Pardon?", "Arrêtez."),
    "es": ("Espere.", "No.", "Perdón?", "Pare."),
    "it": ("Aspetti.", "No.", "Scusi?", "Basta."),
    "ru": ("Стоп.", "Нет.", "Подождите."),
}
SHORT_PROMPTS = (
    "vm-no",
    "one-moment-please",
    "sorry",
    "im-sorry",
    "hello",
    "please-try-again",
    "cancelled",
)
ESPEAK = {
    "en": ("en-us+f1", "en-gb+m3", "en-us+m7", "en-gb+f2"),
    "de": ("de+f3", "de+m2"),
    "fr": ("fr-fr+f5", "fr-fr+m4"),
    "es": ("es+f2", "es-419+m3"),
    "it": ("it+f1", "it+m5"),
    "ru": ("ru+f3", "ru+m2"),
}
NATURAL = "natural"
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Said:
    """Something said over the agent's speech."""

    kind: str
    """``backchannel``, ``command`` or ``prompt``."""
    language: str
    text: str
    sound: Sound
    """8 kHz, full scale 1, shape [n]."""

    @property
    def interrupts(self) -> bool:
        """True if the agent must stop."""
        return self.kind != "backchannel"


@dataclass
class Heard:
    """What became of it; times are seconds of the call."""

    begins: float
    """First voiced sample."""
    ends: float
    began: float | None = None
    """Time of the onset's decision."""
    verdict: str = ""
    rule: str = ""
    decided: float | None = None
    ducked: float | None = None
    """Beginning of the first quieter frame."""
    silent: float | None = None
    """Beginning of the first frame that is not there."""
    words: list[str] = field(default_factory=list)
    """Texts of the recogniser before the verdict."""
    turns: list[str] = field(default_factory=list)
    played: int = 0
    """Samples of the agent that went out."""


def scenes(count: int) -> list[Said]:
    """Half of them backchannels, a quarter commands, a quarter people's prompts."""
    return asyncio.run(_scenes(count))


def agent_speech() -> list[Sound]:
    """The agent's sentences, in the telephone's band."""
    voices = Voices()
    asyncio.run(voices.say([(text, "en-gb+f2", 1.0) for text in AGENT_TEXT]))
    return [at_level(band(sound), AGENT_DBFS) for sound in voices.said.values()]


async def _scenes(count: int) -> list[Said]:
    backchannels = _turn_by_turn(BACKCHANNELS, count // 2)
    commands = _turn_by_turn(COMMANDS, count // 4)
    voices = Voices()
    wanted: list[tuple[str, str, str]] = []
    for number, (language, text) in enumerate(backchannels + commands):
        names = ESPEAK[language]
        natural = language == "en" and number % 3 == 0
        wanted.append((language, text, NATURAL if natural else names[number % len(names)]))
    await voices.say([(text, voice, 1.0) for _, text, voice in wanted if voice != NATURAL])
    by_nature = await _natural({text for _, text, voice in wanted if voice == NATURAL})
    said = []
    for number, (language, text, voice) in enumerate(wanted):
        sound = by_nature[text] if voice == NATURAL else voices.said[text, voice, 1.0]
        kind = "backchannel" if number < len(backchannels) else "command"
        said.append(Said(kind, language, text, band(sound)))
    return said + _prompts(count - len(said))


def _turn_by_turn(texts: dict[str, tuple[str, ...]], count: int) -> list[tuple[str, str]]:
    """Texts of all languages in turn."""
    languages = list(texts)
    found = []
    for number in range(count):
        language = languages[number % len(languages)]
        of_it = texts[language]
        found.append((language, of_it[number // len(languages) % len(of_it)]))
    return found


async def _natural(texts: set[str]) -> dict[str, Sound]:
    said: dict[str, Sound] = {}
    engine: Engine = PiperEngine()
    await engine.start()
    try:
        for text in sorted(texts):
            pcm = b""
            async for chunk in engine.synthesize(SynthesisRequest(text)):
                pcm += chunk.pcm
            narrow = Resampler(SAMPLE_RATE, RATE_HZ, aligned=True)
            samples = np.frombuffer(pcm, "<i2")
            said[text] = np.concatenate([narrow.push(samples), narrow.flush()]) / 32768.0
    finally:
        await engine.close()
    return said


def _prompts(count: int) -> list[Said]:
    """Prompts of people: short ones and sentences, of five languages in turn."""
    languages = ("en", "es", "fr", "it", "ru")
    of: dict[str, list[Said]] = {}
    for language in languages:
        short = []
        for name in SHORT_PROMPTS:
            file = sounds(language) / f"{name}.wav"
            if file.is_file():
                with wave.open(str(file)) as read:
                    samples = np.frombuffer(read.readframes(read.getnframes()), "<i2") / 32768.0
                short.append(Said("prompt", language, name, samples))
        long = [
            Said("prompt", language, each.name, each.samples) for each in prompts([language], 7)
        ]
        of[language] = [each for pair in zip(short, long, strict=False) for each in pair]
    return [
        of[language][number // len(languages) % len(of[language])]
        for number in range(count)
        for language in [languages[number % len(languages)]]
    ]


class SimulatedCall:
    """A call on a simulated clock, as `SpeechDetection` has it: an agent speaks, and its echo."""

    def __init__(self, agent: Sound, caller: Sound, echo: EchoPath | None, seed: int) -> None:
        self.clock = FakeClock(0.0)
        self.facts = CallFacts()
        self.ducked: list[tuple[float, float]] = []
        """Times of frames from which on there was another level, and the dB."""
        self.silent_at: float | None = None
        self.played = 0
        count = (max(len(agent), len(caller)) + FRAME - 1) // FRAME
        self._sent = on_the_line(np.pad(agent, (0, count * FRAME - len(agent))))
        self._voice = np.pad(caller, (0, count * FRAME - len(caller)))
        chance = np.random.default_rng(seed)
        self._hiss = chance.normal(size=count * FRAME) * 10 ** (-65 / 20)
        self._agent_frames = (len(agent) + FRAME - 1) // FRAME
        self._echo = echo
        self._count = count
        self._levels = [(-1.0, 0.0)]
        """Commanded levels: the time of each, and the dB."""
        self._db = 0.0
        self._stopped_at: float | None = None
        self._went: list[SentFrame] = []
        self._frames: asyncio.Queue[HeardFrame | None] = asyncio.Queue()
        self._keys: asyncio.Queue[KeyPressed | None] = asyncio.Queue()
        self._number = 0

    @property
    def speaking(self) -> bool:
        """Whether the agent has something to say."""
        return self._stopped_at is None and self._number < self._agent_frames

    def saying(self) -> Saying | None:
        """Neither a question nor the last clause."""
        return Saying("Your parcel has left the warehouse ", "this morning. It comes.", False)

    def duck(self, db: float = DUCK_DB) -> str:
        """From the next frame on."""
        self._levels.append((self.clock.now(), db))
        return "duck"

    def unduck(self) -> None:
        """From the next frame on."""
        self._levels.append((self.clock.now(), 0.0))

    def interrupt(self) -> list[Utterance]:
        """No further frame."""
        if not self.speaking:
            return []
        self._stopped_at = self.clock.now()
        return [cast(Utterance, self)]

    def sent_audio(self) -> SentAudio:
        """What went out since it was last taken."""
        return cast(SentAudio, self)

    def take(self) -> list[SentFrame]:
        """As `SentAudio`."""
        went, self._went = self._went, []
        return went

    def close(self) -> None:
        """As `SentAudio`."""

    @property
    def audio(self) -> Callable[[], AsyncIterator[HeardFrame]]:
        """The caller's frames."""
        return lambda: _all(self._frames)

    @property
    def dtmf(self) -> Callable[[], AsyncIterator[KeyPressed]]:
        """No keys."""
        return lambda: _all(self._keys)

    async def step(self) -> bool:
        """One frame each way; False: the call is over."""
        if self._number >= self._count:
            self._frames.put_nowait(None)
            self._keys.put_nowait(None)
            return False
        piece = slice(self._number * FRAME, (self._number + 1) * FRAME)
        sends_at = self._number * FRAME_S
        ours: Samples = np.zeros(FRAME, np.int16)
        stopped = self._stopped_at is not None and self._stopped_at <= sends_at
        if self._number < self._agent_frames and not stopped:
            db = next(db for at, db in reversed(self._levels) if at <= sends_at)
            if db != self._db:
                self._db = db
                self.ducked.append((sends_at, self._db))
            scaled = self._sent[piece] * 10 ** (-self._db / 20)
            ours = np.rint(scaled).astype(np.int16)
            self._went.append(SentFrame(ours, RATE_HZ, sends_at))
            self.played += FRAME
        elif stopped and self.silent_at is None:
            self.silent_at = sends_at
        back = self._echo.push(ours) / 32768.0 if self._echo is not None else 0.0
        heard = on_the_line(back + self._voice[piece] + self._hiss[piece])
        at = (self._number + 1) * FRAME_S + WAY_S
        self._number += 1
        await self.clock.advance(at - self.clock.now())
        self._frames.put_nowait(HeardFrame(heard, at, False, RATE_HZ, (self._number - 1) * FRAME))
        return True


def call_of(
    said: Said, agent: list[Sound], number: int, *, dbfs: float | None = None, echo: bool = True
) -> tuple[SimulatedCall, Heard]:
    """The call of one scene, and where its speech is."""
    level = LEVELS[number % len(LEVELS)] if dbfs is None else dbfs
    begins, ends = voiced_from_to(said.sound)
    start = RATE_HZ + (number * 731) % (2 * RATE_HZ)
    caller = np.concatenate((np.zeros(start), at_level(said.sound, level)))
    speech = np.concatenate([*agent, *agent])
    speech = speech[: len(caller) + round(AFTER_S * RATE_HZ)]
    path = EchoPath(
        down_db=ECHO_DB, delay_ms=DELAYS_MS[number // len(LEVELS) % len(DELAYS_MS)], seed=number
    )
    call = SimulatedCall(speech, caller, path if echo else None, number)
    return call, Heard((start + begins) / RATE_HZ, (start + ends) / RATE_HZ)


async def _all(queue: asyncio.Queue[_Item | None]) -> AsyncIterator[_Item]:
    while (item := await queue.get()) is not None:
        yield item
