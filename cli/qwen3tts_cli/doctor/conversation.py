"""Check of a conversation: voice, recogniser, language model, response time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from qwen3tts_cli.calls.text import chat_of
from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.options import NONE, ConversationOptions
from qwen3tts_cli.doctor.targets import turn_detector_check
from qwen3tts_cli.options.common import speech_server
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_cli.voices import shown_voice
from qwen3tts_codecs.g711 import decode_ulaw
from qwen3tts_codecs.resample import Resampler
from qwen3tts_wire.errors import EngineFailed, SpeechError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from qwen3tts_agent.chat.check import ModelSpeed
    from qwen3tts_agent.chat.settings import ChatSettings
    from qwen3tts_pacer.clock import Clock
    from qwen3tts_phone.detection.recogniser import Recogniser
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_wire.client import SpeechClient


RATE_HZ = 8000
"""Of G.711."""
AUDIBLE_PEAK = 300
"""Peak of an audible int16 frame (-41 dBFS)."""
FRAME = 160
"""Samples of 20 ms."""
OPENING = "Yes."
SENTENCE = "Good morning, how can I help you today?"
DIGITS = "1, 2, 3, 4, 5, 6."
"""Text of the test in any language."""


@dataclass(frozen=True, slots=True)
class VoiceSample:
    sentence: str
    first_sound_s: float
    """From text to first audible samples."""
    shown: str
    """Engine and voice for display."""
    samples: NDArray[np.int16] = field(repr=False)
    """µ-law decoded, 8 kHz, int16 [n], trimmed."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / RATE_HZ


async def speak(client: SpeechClient, speech_options: SpeechOptions) -> VoiceSample:
    """Synthesise a warm-up word, then a sentence; raises SpeechError."""
    english = speech_options.language is None or speech_options.language.lower().startswith("en")
    sentence = SENTENCE if english else DIGITS
    await _said(client, speech_options, OPENING if english else DIGITS)
    samples, first_s = await _said(client, speech_options, sentence)
    if first_s is None:
        raise EngineFailed(
            "the voice produces no audio.", remedy="Try another one: mr-qwen3tts voices lists them."
        )
    return VoiceSample(
        sentence, first_s, shown_voice(client.session, speech_options.voice), trimmed(samples)
    )


def trimmed(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    """Return samples [n] from the first audible frame to the last."""
    frames = len(samples) // FRAME
    peaks = np.abs(samples[: frames * FRAME].astype(np.int32)).reshape(frames, FRAME).max(axis=1)
    loud = np.flatnonzero(peaks > AUDIBLE_PEAK)
    if not len(loud):
        return samples[:0]
    return samples[loud[0] * FRAME : (loud[-1] + 1) * FRAME]


async def _said(
    client: SpeechClient, speech_options: SpeechOptions, text: str
) -> tuple[NDArray[np.int16], float | None]:
    from qwen3tts_wire.client import Audio
    from qwen3tts_wire.formats import AudioFormat

    began = perf_counter()
    context = await client.open(
        voice=speech_options.voice,
        language=speech_options.language,
        format=AudioFormat("mulaw", RATE_HZ),
        **speech_options.options,
    )
    await context.append(text)
    await context.end()
    parts: list[NDArray[np.int16]] = []
    taken = 0
    first_s: float | None = None
    async for event in context:
        if isinstance(event, Audio):
            parts.append(decode_ulaw(event.pcm))
            taken += len(parts[-1])
            if first_s is None and np.abs(parts[-1].astype(np.int32)).max(initial=0) > AUDIBLE_PEAK:
                first_s = perf_counter() - began
            await context.report(taken)
    return np.concatenate(parts) if parts else np.zeros(0, np.int16), first_s


FRAME_S = 0.02


@dataclass(frozen=True, slots=True)
class RecognisedTurn:
    wait_s: float
    """From the end of the pause to the text."""
    text: str = field(repr=False)
    ahead_s: float = 0.0
    """From the text to the end of the pause, where it came before that."""


async def recognise_turn(
    recogniser: Recogniser, samples: NDArray[np.int16], listen: ListenSettings, clock: Clock
) -> RecognisedTurn:
    """Feed a turn (8 kHz int16 [n]) and its pause in real time; raises SpeechError."""
    resampler = Resampler(RATE_HZ, recogniser.rate_hz) if recogniser.rate_hz != RATE_HZ else None
    from qwen3tts_agent.guess import same_words

    texts: list[tuple[float, str]] = []
    recognition = await recogniser.open(lambda text: texts.append((clock.now(), text.text)))
    began = clock.now()
    spoken_s = len(samples) / RATE_HZ
    pause = np.zeros(round(listen.pause_ms / 1000 * RATE_HZ), np.int16)
    sound = np.concatenate((samples, pause))
    size = round(FRAME_S * RATE_HZ)
    noticed = False
    try:
        recognition.begin_turn(began)
        for start in range(0, len(sound), size):
            frame = sound[start : start + size]
            at = began + (start + len(frame)) / RATE_HZ
            await clock.sleep_until(at)
            recognition.push(frame if resampler is None else resampler.push(frame), at)
            if not noticed and at - began - spoken_s >= listen.notice_ms / 1000 - FRAME_S / 2:
                noticed = True
                recognition.pause(began + spoken_s)
        ended = clock.now()
        transcript = await recognition.end_turn(began + spoken_s)
        guessed = [at for at, text in texts if same_words(text) == same_words(transcript.text)]
        noticed_at = began + spoken_s + listen.notice_ms / 1000
        known = max(noticed_at, guessed[0]) if guessed else ended
        return RecognisedTurn(clock.now() - ended, transcript.text, max(0.0, ended - known))
    finally:
        await recognition.close()


OWN_LATENCY_MS = 24.0
"""Own latency between model, voice and wire, p50 (``python benchmarks/turns.py``)."""
LONG_WAIT_MS = 2000.0
"""Response time above which callers ask if anyone is there."""
LATENCY_REMEDIES = {
    "pause": "Shorten --pause-ms, which interrupts more callers.",
    "recogniser": "Use a smaller recogniser model, or a GPU.",
    "first token": "Use a smaller or nearer model.",
    "first clause": "Use a faster model, or ask for short clauses with --system.",
    "voice": "Use a faster voice, or a server with a GPU.",
    "line": "",
}
"""Remedy for each part."""


@dataclass(frozen=True, slots=True)
class ConversationParts:
    speech_options: SpeechOptions
    listen: ListenSettings
    server: str | None = None
    """URL; None: local engine."""
    stt: str | None = None
    """Recogniser; None: installed Whisper."""
    chat: ChatSettings | None = None


def conversation_parts(options: ConversationOptions, server: str | None) -> ConversationParts:
    listening = ListenOptions(
        barge_in=True, pause_ms=options.pause_ms, smart_turn=options.smart_turn
    )
    return ConversationParts(
        SpeechOptions(voice=options.voice, language=options.language),
        listening.settings(),
        server,
        options.stt,
        chat_of(options.llm, options.model, options.key_env) if options.llm is not None else None,
    )


async def conversation_checks(parties: ConversationParts) -> AsyncIterator[Check]:
    from qwen3tts_phone.detection.adaptive_pause import AdaptivePause
    from qwen3tts_wire.client import SpeechClient

    parts: dict[str, float] = {"pause": float(parties.listen.pause_ms)}
    ahead_ms = 0.0
    async with AsyncExitStack() as stack:
        voice: VoiceSample | None = None
        try:
            url = await stack.enter_async_context(speech_server(parties.server))
            client = await stack.enter_async_context(await SpeechClient.connect(url))
            voice = await speak(client, parties.speech_options)
        except SpeechError as error:
            yield _failed("voice", error)
        else:
            yield _voice_check(voice)
        if parties.listen.smart_turn:
            yield await asyncio.to_thread(turn_detector_check, parties.listen)
        if parties.stt != NONE:
            check, heard = await _recogniser(parties, voice)
            if heard is not None:
                parts["recogniser"] = heard.wait_s * 1000
                ahead_ms = heard.ahead_s * 1000
            yield check
        if parties.chat is not None:
            check, speed = await _model(parties.chat)
            if speed is not None:
                parts["first token"] = speed.first_token_s * 1000
                parts["first clause"] = speed.first_clause_s * 1000
            yield check
        if voice is not None:
            parts["voice"] = voice.first_sound_s * 1000
        parts["line"] = OWN_LATENCY_MS
        if parts.keys() == LATENCY_REMEDIES.keys():
            least_ms = AdaptivePause(parties.listen).least_ms
            adaptive = parties.listen.adaptive_pause
            yield wait_check(parts, ahead_ms, least_ms if adaptive else None)


PREPARED = ("first token", "first clause", "voice")
"""Parts that run in the pause where the text is known by then."""


def wait_check(
    parts: Mapping[str, float], ahead_ms: float = 0.0, least_ms: float | None = None
) -> Check:
    """Check the time from the caller's last audio to the first of the answer; ``parts`` in ms.

    ``ahead_ms``: from the text to the end of the pause, in which the reply is prepared;
    ``least_ms``: adaptive pause after a complete sentence, once its text is there.
    """
    ready = sum(parts[name] for name in PREPARED)
    prepared = min(ahead_ms, ready)
    total = sum(parts.values()) - prepared
    named = ", ".join(f"{name} {ms:.0f} ms" for name, ms in parts.items())
    figures = {f"{name.replace(' ', '_')}_ms": round(ms, 1) for name, ms in parts.items()}
    if prepared:
        named += f"; {prepared:.0f} ms of it in the pause"
        figures["prepared_ms"] = round(-prepared, 1)
    sooner_ms = min(ahead_ms, parts["pause"] - least_ms) if least_ms is not None else 0.0
    if sooner_ms > 0:
        adaptive = sum(parts.values()) - sooner_ms - min(ahead_ms - sooner_ms, ready)
        named += f"; about {adaptive / 1000:.1f} s after a complete sentence, by the adaptive pause"
        figures["adaptive_total_ms"] = round(adaptive, 1)
    longest = max(parts, key=lambda name: parts[name])
    late = total > LONG_WAIT_MS
    return Check(
        "voice to voice",
        Level.WARN if late else Level.OK,
        f"about {total / 1000:.1f} s: {named}",
        LATENCY_REMEDIES[longest] if late else "",
        {"total_ms": round(total, 1), **figures},
    )


def _voice_check(voice: VoiceSample) -> Check:
    ms = voice.first_sound_s * 1000
    found = f"{voice.shown}: first sound after {ms:.0f} ms"
    return Check("voice", Level.OK, found, "", {"first_ms": round(ms, 1)})


async def _recogniser(
    parties: ConversationParts, voice: VoiceSample | None
) -> tuple[Check, RecognisedTurn | None]:
    from qwen3tts_codecs.resample import Resampler
    from qwen3tts_pacer.clock import LoopClock

    name = "recogniser"
    try:
        with require_extra("phone"):
            from qwen3tts_agent.recognition.kinds import check_recogniser, recogniser_named
            from qwen3tts_agent.recognition.whisper import WhisperRecogniser
        language = parties.speech_options.language
        options: dict[str, object] = {}
        if language:
            options["languages"] = (language.replace("_", "-").partition("-")[0],)
        stt = parties.stt or "whisper"
        if parties.stt is None:
            options["offline"] = True
        recogniser = recogniser_named(stt, **options)
        factor: float | None = None
        shown = stt
        try:
            if isinstance(recogniser, WhisperRecogniser):
                resampler = Resampler(RATE_HZ, recogniser.rate_hz)
                speech = resampler.push(voice.samples) if voice is not None else None
                report = await recogniser.check(speech)
                shown, factor = report.line, report.real_time_factor
            else:
                known = await check_recogniser(stt, **options)
                facts = (known.kind, known.model, known.language, known.address)
                shown, factor = " ".join(filter(None, facts)), known.real_time_factor
                await recogniser.warm()
            if voice is None:
                words = f"{shown} is ready; not tested without a voice"
                return Check(name, Level.WARN, words, "Fix the voice first."), None
            heard = await recognise_turn(recogniser, voice.samples, parties.listen, LoopClock())
        finally:
            await recogniser.close()
    except SpeechError as error:
        if parties.stt is None:
            return Check(name, Level.WARN, error.message, error.remedy), None
        return _failed(name, error), None
    speed = f", {factor:.2f} of real time" if factor is not None else ""
    wait_ms = heard.wait_s * 1000
    found = (
        f"{shown}{speed}; after a pause of {parties.listen.pause_ms} ms the text comes within"
        f" {wait_ms:.0f} ms"
    )
    figures = {"wait_ms": round(wait_ms, 1)}
    if factor is not None:
        figures["real_time_factor"] = round(factor, 3)
    if not heard.text.strip():
        remedy = "Name a model of the voice's language with --stt, and that language (--language)."
        return Check(name, Level.WARN, f"{found}; it recognised nothing", remedy, figures), heard
    found = f"{found}; of “{voice.sentence}” it recognised “{heard.text.strip()}”"
    if factor is not None and factor > 1:
        remedy = "It is too slow for calls: name a smaller model with --stt, or use a GPU."
        return Check(name, Level.WARN, found, remedy, figures), heard
    return Check(name, Level.OK, found, "", figures), heard


async def _model(chat: ChatSettings) -> tuple[Check, ModelSpeed | None]:
    from qwen3tts_agent.chat.check import check_model, measure_model

    name = "language model"
    try:
        known = await check_model(chat)
        speed = await measure_model(chat)
    except SpeechError as error:
        return _failed(name, error), None
    first_ms = speed.first_token_s * 1000
    found = f"{known.model} at {known.shown}: first token after {first_ms:.0f} ms"
    figures = {"first_token_ms": round(first_ms, 1)}
    if speed.tokens_per_s is not None:
        found += f", {speed.tokens_per_s:.0f} tokens a second"
        figures["tokens_per_s"] = round(speed.tokens_per_s, 1)
    if not known.streams:
        remedy = "Let the server stream: callers wait for whole replies."
        return Check(name, Level.WARN, f"{found}; it does not stream", remedy, figures), speed
    return Check(name, Level.OK, found, "", figures), speed


def _failed(name: str, error: SpeechError) -> Check:
    return Check(name, Level.FAIL, error.message, error.remedy)
