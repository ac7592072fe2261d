"""Whisper on the telephone: word errors, and the time from a caller's last sound to the text.

People's prompts (recorded_prompts.py) pass mu-law at 8 kHz, with 15 dB of pink noise too. English
is recognised by tiny.en, the other languages by base. One thread. Compared are `transcribe` of
faster-whisper, greedy, on its window of 30 s (English alone); our whole turn, on a window of its
length; and our turn as it is recognised while it is spoken. With transformers installed and
openai/whisper-tiny.en in the hub's cache, that is measured too.

- *window of N s*: the whole turn with that least window of the encoder (``window_s``); ours has the
  turn's length and 2 s, 8 s at least.
- *work*: processor time of one recognition of a whole turn, ms.
- *words after*: from the last voiced sample to when the words were there, ms, on an idle core: the
  call's own listening, recogniser and queue run on a clock that goes on by 20 ms of sound, and the
  model's answers come after the processor time that it took. ``from the pause on``: nothing is
  recognised before notice_ms of silence.
- *cpu a second*: processor time of the recogniser for a second of the caller's turn, ms.
- ``--live N``: so many turns in real time through the recogniser's process; wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from common import Bench
from line_sounds import at_level, mix, noise, on_the_line, voiced_from_to
from numpy.typing import NDArray
from recorded_prompts import LIST, RATE_HZ, Prompt, errors, prompts, words

from qwen3tts_agent.recognition.queue import RecognitionQueue
from qwen3tts_agent.recognition.settings import WhisperSettings
from qwen3tts_agent.recognition.whisper import WhisperRecogniser
from qwen3tts_codecs.resample import Resampler
from qwen3tts_phone.audio.frames import HeardFrame
from qwen3tts_phone.detection.core import SpeechDetectionCore
from qwen3tts_phone.detection.events import OnsetHeard, SpeechPaused, SpeechResumed, TurnEnded
from qwen3tts_phone.detection.recogniser import Recognition, RecognitionFailed, Transcript
from qwen3tts_phone.detection.settings import ListenSettings
from qwen3tts_wire.whisper.guards import Decoding
from qwen3tts_wire.whisper.model import LEAST_WINDOW_S, WhisperModel
from qwen3tts_wire.whisper.model import RATE_HZ as HEARD_HZ

FRAME = RATE_HZ // 50
FRAME_S = 0.02
BEFORE_S, AFTER_S = 0.5, 1.6
LEVEL_DBFS = -22.0
WINDOWS_S = (10, 15, 30)
"""Least windows of the encoder that ours is compared with."""
ROUND_S = (2.5, 4.0)
"""Turns of some 3 s, of which the times are told."""
Samples = NDArray[np.int16]


@dataclass
class Tally:
    """Results of some turns."""

    words: int = 0
    wrong: int = 0
    work_ms: list[float] = field(default_factory=list)
    after_ms: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    sound_s: float = 0.0

    def count(self, prompt: Prompt, text: str) -> None:
        """Compare a text with the prompt's words."""
        self.words += len(prompt.words)
        self.wrong += errors(prompt.words, words(text, prompt.language))

    @property
    def wer(self) -> float:
        """Word error rate, per cent."""
        return 100 * self.wrong / max(1, self.words)


def p(values: Sequence[float], q: int) -> float:
    """A percentile; nan of nothing."""
    return float(np.percentile(values, q)) if len(values) else float("nan")


def line(prompt: Prompt, snr_db: float | None, seed: int) -> tuple[Samples, float]:
    """A call's sound at 8 kHz, int16 [n], and when its last voiced sample is."""
    chance = np.random.default_rng(seed)
    said = at_level(prompt.samples, LEVEL_DBFS)
    _, ends = voiced_from_to(said)
    quiet = np.zeros(round(BEFORE_S * RATE_HZ)), np.zeros(round(AFTER_S * RATE_HZ))
    whole = np.concatenate((quiet[0], said, quiet[1]))
    around = chance.normal(size=len(whole)) * 10 ** (-70 / 20)
    if snr_db is not None:
        whole = mix(whole, noise("pink", len(whole) / RATE_HZ + 0.1, chance), snr_db, LEVEL_DBFS)
    return on_the_line(whole + around), BEFORE_S + ends / RATE_HZ


def up(samples: Samples) -> Samples:
    """8 to 16 kHz."""
    resampler = Resampler(RATE_HZ, HEARD_HZ)
    return np.concatenate([resampler.push(samples), resampler.flush()])


class Clock:
    """The simulated one."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        """Seconds."""
        return self.at

    async def sleep_until(self, at: float) -> None:
        """Not needed here."""
        raise NotImplementedError


class CountedModel:
    """A worker as `RecognitionQueue` has it: computes immediately, answers by the clock."""

    def __init__(self, model: WhisperModel, clock: Clock) -> None:
        self.on_gone: Callable[[], None] = lambda: None
        self.alive = True
        self.cpu_s = 0.0
        self._model = model
        self._clock = clock
        self._free_at = 0.0
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    async def hear(self, samples: Samples) -> Decoding:
        """One piece."""
        began = time.process_time()
        encoded = began

        def wanted() -> bool:
            nonlocal encoded
            encoded = time.process_time()
            return True

        answer = self._model.hear(samples, wanted)
        assert answer is not None
        took, first = time.process_time() - began, encoded - began
        start = self._clock.now()
        try:
            await self._until(start + took)
        except asyncio.CancelledError:  # the decoder does not begin after the encoder
            stopped = first if self._clock.now() < start + first else took
            self._free_at = start + stopped
            self.cpu_s += stopped
            raise
        self.cpu_s += took
        return answer

    async def idle(self) -> None:
        """Note the end of a piece that was given up."""
        await self._until(self._free_at)

    async def close(self) -> None:
        """Nothing."""

    def ring(self) -> None:
        """The clock has gone on."""
        for at, future in self._waiting:
            if at <= self._clock.now() and not future.done():
                future.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    async def _until(self, at: float) -> None:
        if at > self._clock.now():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((at, future))
            await future


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(12):
        await asyncio.sleep(0)


class Caller:
    """One call's listening, on any clock."""

    def __init__(self, recognition: Recognition, now: Callable[[], float]) -> None:
        self.done_at = 0.0
        """Time of the last turn's text."""
        self._now = now
        self.core = SpeechDetectionCore(ListenSettings(), 0.0)
        self.recognition = recognition
        self.texts: list[asyncio.Task[str]] = []
        self._up = Resampler(RATE_HZ, HEARD_HZ)

    def push(self, samples: Samples, at: float) -> None:
        """A frame of the caller."""
        events = self.core.push(HeardFrame(samples, at, False, RATE_HZ))
        self.recognition.push(self._up.push(samples), at)
        for event in events:
            if isinstance(event, OnsetHeard):
                self.recognition.begin_turn(event.began_at)
            elif isinstance(event, SpeechPaused):
                self.recognition.pause(event.ended_at)
            elif isinstance(event, SpeechResumed):
                self.recognition.resume()
            elif isinstance(event, TurnEnded) and event.why == "noise":
                self.recognition.drop_turn()
            elif isinstance(event, TurnEnded):
                ending = self.recognition.end_turn(event.ended_at)
                self.texts.append(asyncio.ensure_future(self._text(ending)))

    async def _text(self, ending: Awaitable[Transcript]) -> str:
        try:
            text = (await ending).text
            self.done_at = self._now()
            return text
        except RecognitionFailed as error:
            print(f"a turn failed: {error}")
            return ""


async def simulated(
    model: WhisperModel, sounds: Sequence[tuple[Prompt, Samples, float]], *, ahead: bool
) -> Tally:
    """Turns through the recogniser; ``ahead``: while they are spoken, else from the pause on."""
    tally = Tally()
    for prompt, sound, last in sounds:
        clock = Clock()
        worker = CountedModel(model, clock)

        async def start(worker: CountedModel = worker) -> CountedModel:
            return worker

        recogniser = WhisperRecogniser(WhisperSettings("auto", timeout_s=600.0), clock=clock)
        recogniser._queue = RecognitionQueue(start, clock, most_waiting=64)
        if not ahead:
            recogniser._rules = replace(recogniser._rules, every_s=None)
        await recogniser.warm()
        partials: list[tuple[float, str]] = []

        def told(
            text: Transcript, clock: Clock = clock, to: list[tuple[float, str]] = partials
        ) -> None:
            to.append((clock.now(), text.text))

        caller = Caller(await recogniser.open(told), clock.now)
        for number in range(len(sound) // FRAME):
            clock.at = (number + 1) * FRAME_S
            worker.ring()
            await settle()
            caller.push(sound[number * FRAME : (number + 1) * FRAME], clock.at)
            await settle()
        while not all(text.done() for text in caller.texts):
            clock.at += FRAME_S
            worker.ring()
            await settle()
        text = " ".join(each.result() for each in caller.texts)
        tally.count(prompt, text)
        tally.cpu_s += worker.cpu_s
        tally.sound_s += last - BEFORE_S
        if ROUND_S[0] <= last - BEFORE_S <= ROUND_S[1] and len(caller.texts) == 1:
            same = [at for at, partial in partials if partial == text and at >= last]
            tally.after_ms.append(1000 * ((same[0] if same else caller.done_at) - last))
        await recogniser.close()
    return tally


def whole(sounds: Sequence[tuple[Prompt, Samples, float]], hear: Callable[[Samples], str]) -> Tally:
    """Each turn in one batch, by any function of 16 kHz samples."""
    tally = Tally()
    for prompt, sound, last in sounds:
        turn = up(sound)[round((BEFORE_S - 0.3) * HEARD_HZ) : round((last + 0.3) * HEARD_HZ)]
        began = time.process_time()
        text = hear(turn)
        took = time.process_time() - began
        tally.count(prompt, text)
        tally.cpu_s += took
        tally.sound_s += last - BEFORE_S
        if ROUND_S[0] <= last - BEFORE_S <= ROUND_S[1]:
            tally.work_ms.append(1000 * took)
    return tally


def greedy(model: WhisperModel, language: str) -> Callable[[Samples], str]:
    """faster-whisper's own way, as fast as it can be asked to be."""

    def hear(samples: Samples) -> str:
        segments, _ = model._model.transcribe(
            samples.astype(np.float32) / 32768.0,
            language=language,
            beam_size=1,
            temperature=0.0,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return " ".join(each.text for each in segments)

    return hear


def by_transformers() -> Callable[[Samples], str] | None:
    """The peer, where it and its model are here."""
    if importlib.util.find_spec("transformers") is None:
        return None
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    name = "openai/whisper-tiny.en"
    try:
        processor = transformers.WhisperProcessor.from_pretrained(name, local_files_only=True)
        model = transformers.WhisperForConditionalGeneration.from_pretrained(
            name, local_files_only=True
        ).eval()
    except OSError:
        return None
    torch.set_num_threads(1)

    def hear(samples: Samples) -> str:
        features = processor(samples / 32768.0, sampling_rate=HEARD_HZ, return_tensors="pt")
        with torch.no_grad():
            ids = model.generate(features.input_features)
        return str(processor.batch_decode(ids, skip_special_tokens=True)[0])

    return hear


async def live(settings: WhisperSettings, sounds: list[tuple[Prompt, Samples, float]]) -> Tally:
    """Turns in real time through the recogniser's process; wall time."""
    tally = Tally()
    recogniser = WhisperRecogniser(settings)
    await recogniser.warm()
    loop = asyncio.get_running_loop()
    for prompt, sound, last in sounds:
        partials: list[tuple[float, str]] = []

        def told(text: Transcript, to: list[tuple[float, str]] = partials) -> None:
            to.append((loop.time(), text.text))

        caller = Caller(await recogniser.open(told), loop.time)
        began = loop.time()
        for number in range(len(sound) // FRAME):
            at = (number + 1) * FRAME_S
            await asyncio.sleep(max(0.0, began + at - loop.time()))
            caller.push(sound[number * FRAME : (number + 1) * FRAME], at)
        text = " ".join([await each for each in caller.texts])
        tally.count(prompt, text)
        same = [at - began for at, partial in partials if partial == text and at - began >= last]
        if len(caller.texts) == 1:
            done = same[0] if same else caller.done_at - began
            tally.after_ms.append(1000 * (done - last))
    await recogniser.close()
    return tally


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--languages", default=",".join(LIST["prompts"]))
    parser.add_argument("--live", type=int, default=0, metavar="N", help="turns in real time")
    bench = Bench("recognition", "Whisper on the telephone", parser)
    most = 6 if bench.quick else None
    chosen = ["en"] if bench.quick else bench.args.languages.split(",")
    found = prompts(chosen, most)
    models = {"en": WhisperModel.load("tiny.en", ("en",), device="cpu", threads=1)}
    tallies: dict[str, dict[str, Tally]] = defaultdict(dict)
    for language in chosen:
        mine = [each for each in found if each.language == language]
        clean = [(each, *line(each, None, number)) for number, each in enumerate(mine)]
        noisy = [(each, *line(each, 15.0, number)) for number, each in enumerate(mine)]
        model = models.get(language) or WhisperModel.load(
            "base", (language,), device="cpu", threads=1
        )

        def ours(samples: Samples, model: WhisperModel = model) -> str:
            answer = model.hear(samples)
            return answer.text if answer is not None else ""

        ours(np.zeros(HEARD_HZ, np.int16))
        rows = tallies[language]
        rows["whole turn"] = whole(clean, ours)
        rows["whole turn, noise 15 dB"] = whole(noisy, ours)
        for least in WINDOWS_S:
            model.least_window_s = least
            rows[f"window of {least} s"] = whole(clean, ours)
            rows[f"window of {least} s, noise 15 dB"] = whole(noisy, ours)
        model.least_window_s = LEAST_WINDOW_S
        if language == "en":
            rows["transcribe(), 30 s"] = whole(clean, greedy(model, language))
            rows["from the pause on"] = asyncio.run(simulated(model, clean, ahead=False))
            if (peer := by_transformers()) is not None:
                rows["transformers"] = whole(clean, peer)
        rows["while spoken"] = asyncio.run(simulated(model, clean, ahead=True))
        bench.table(
            f"{language}: {model.found.name}, {len(mine)} prompts",
            [
                *("how", "WER %", "work ms p50", "p95", "words after ms p50", "p95"),
                *("cpu a second ms", "turns timed"),
            ],
            [
                [
                    name,
                    each.wer,
                    p(each.work_ms, 50),
                    p(each.work_ms, 95),
                    p(each.after_ms, 50),
                    p(each.after_ms, 95),
                    1000 * each.cpu_s / each.sound_s,
                    max(len(each.work_ms), len(each.after_ms)),
                ]
                for name, each in rows.items()
            ],
        )
    if bench.args.live:
        clean = [(each, *line(each, None, number)) for number, each in enumerate(found)]
        turns = [each for each in clean if each[0].language == "en"]
        short = [each for each in turns if ROUND_S[0] <= each[2] - BEFORE_S <= ROUND_S[1]]
        settings = WhisperSettings("tiny.en", languages=("en",), threads=1)
        tally = asyncio.run(live(settings, short[: bench.args.live]))
        bench.table(
            "in real time, wall time",
            ["WER %", "words after ms p50", "p95", "turns"],
            [[tally.wer, p(tally.after_ms, 50), p(tally.after_ms, 95), len(tally.after_ms)]],
        )
    if not (english := tallies["en"]):
        return
    bench.figure(
        wer_mulaw=english["while spoken"].wer,
        wer_noise15=english["whole turn, noise 15 dB"].wer,
        words_after_ms_p50=p(english["while spoken"].after_ms, 50),
        words_after_ms_p95=p(english["while spoken"].after_ms, 95),
        rt=english["whole turn"].cpu_s / english["whole turn"].sound_s,
        work_ms_p50=p(english["whole turn"].work_ms, 50),
        transcribe_ms_p50=p(english["transcribe(), 30 s"].work_ms, 50),
        window10_ms_p50=p(english["window of 10 s"].work_ms, 50),
        window15_ms_p50=p(english["window of 15 s"].work_ms, 50),
        window30_ms_p50=p(english["window of 30 s"].work_ms, 50),
        wer_window10=english["window of 10 s"].wer,
        wer_window15=english["window of 15 s"].wer,
        wer_window30=english["window of 30 s"].wer,
    )


if __name__ == "__main__":
    main()
