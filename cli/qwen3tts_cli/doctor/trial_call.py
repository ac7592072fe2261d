"""Diagnostic call: register, OPTIONS, INVITE, tone, listen, hang up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from qwen3tts_pacer.clock import Clock
    from qwen3tts_phone.facts import CallFacts
    from qwen3tts_phone.phone import Call, Phone, PhoneSettings
    from qwen3tts_phone.sip.registration.line import Line

TONE_HZ = 440.0
TONE_S = 2.0
TONE_RATE_HZ = 24_000
TONE_PEAK = 3277
"""-20 dBFS."""
FADE_S = 0.02
LOUD_RMS = 300
"""RMS of an audible int16 frame (-41 dBFS)."""
SLACK_S = 1.0
"""Tolerated delay of the tone's end."""
SILENT_S = 2.0
"""RTP silence that counts as stopped; shorter than a phone's timeout."""
HANGUP_TIMEOUT_S = 5.0
"""Timeout of the hang-up."""


@dataclass(frozen=True, slots=True)
class Trial:
    target: str | None
    """None: registration only."""
    account: str | None = None
    register: bool = False
    """Whether to register; incoming calls then arrive here."""
    ring_s: float = 30.0
    """Ringing timeout."""
    listen_s: float = 4.0
    """Listening time after the tone."""


def trial_settings(settings: PhoneSettings, trial: Trial) -> PhoneSettings:
    """Return settings without records and without unrequested registration."""
    accounts = settings.accounts
    if trial.account is not None:
        accounts = tuple(each for each in accounts if each.name == trial.account)
    if not trial.register:
        # A second registration of the same account would take calls from the phone that has it.
        accounts = tuple(replace(each, register=False) for each in accounts)
    listen = settings.sip
    assert listen is not None
    return replace(
        settings,
        accounts=accounts,
        sip=replace(listen, ring_timeout_s=trial.ring_s),
        records=None,
        record_path=None,
        latency_log=None,
        media_silent_s=SILENT_S,
    )


async def try_call(settings: PhoneSettings, trial: Trial) -> AsyncIterator[Check]:
    """Yield each step, then the findings, most severe first."""
    settings = trial_settings(settings, trial)
    with require_extra("phone"):
        from qwen3tts_phone.phone import Phone
        from qwen3tts_speech.link import SpeechLink
    async with contextlib.AsyncExitStack() as stack:
        link = SpeechLink("")  # nothing is spoken: it is never connected
        stack.push_async_callback(link.close)
        try:
            phone = await stack.enter_async_context(Phone(settings, link=link))
        except SpeechError as error:
            yield failure_check(error)
            return
        yield Check("phone", Level.OK, f"SIP at {phone.uri}")
        for name, line in phone.registrations.items():
            yield Check(f"account {name}", Level.OK, account_state(line))
        if trial.target is not None:
            yield await check_options_reply(phone, trial.target, trial)
            async for check in call_checks(phone, trial.target, trial):
                yield check


async def check_options_reply(phone: Phone, target: str, trial: Trial) -> Check:
    account = trial.account or next(iter(phone.registrations), None)
    try:
        answer = await phone.options(target, account=account)
    except SpeechError as error:
        # Many servers do not answer strangers; the call itself decides.
        return replace(failure_check(error), name="OPTIONS", level=Level.WARN)
    shown = f"{answer.status} {answer.reason}".rstrip()
    return Check("OPTIONS", Level.OK, f"{shown} after {answer.round_trip_s * 1000:.0f} ms")


async def call_checks(phone: Phone, target: str, trial: Trial) -> AsyncIterator[Check]:
    from qwen3tts_phone.diagnosis.diagnose import diagnose

    try:
        call = await phone.dial(target, account=trial.account)
    except SpeechError as error:
        yield failure_check(error)
        return
    refused: SpeechError | None = None
    try:
        await call.answered()
    except SpeechError as error:
        refused = error
    else:
        yield Check("call", Level.OK, f"answered with {call.codec}{_encrypted(call.facts)}")
        heard = await tone_and_listen(call, phone.clock, trial.listen_s)
        await call.hangup()
        yield heard
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANGUP_TIMEOUT_S):
            await call.ended()
    facts = call.facts
    if refused is None:
        yield sent_audio_check(facts)
    findings = diagnose(facts)
    for number, each in enumerate(findings):
        # The trial reports why there was no call, also without a fault.
        why_none = refused is not None and number == 0
        level = Level.FAIL if each.severe or why_none else Level.WARN
        yield Check(each.code, level, each.words, each.remedy)
    if refused is not None and not findings:
        yield failure_check(refused)
    if refused is None and not findings:
        yield Check("verdict", Level.OK, "Nothing is wrong with this call.")


def failure_check(error: SpeechError) -> Check:
    """Return an error with remedy; its name is the record's code."""
    from qwen3tts_phone.diagnosis.call_failure import finding_of

    found = finding_of(error)
    return Check(found.code, Level.FAIL, found.words, found.remedy)


def account_state(line: Line) -> str:
    if line.registration is None and line.state == "unknown":
        return f"at {line.server}, not registered for this"
    return f"{line.state} at {line.server}"


async def tone_and_listen(call: Call, clock: Clock, listen_s: float) -> Check:
    hearing = ReceivedAudio()
    listening = asyncio.create_task(hearing.follow(call))
    over = asyncio.create_task(call.ended())
    course = asyncio.create_task(_course(call, clock, listen_s))
    try:
        await asyncio.wait({course, over}, return_when=asyncio.FIRST_COMPLETED)
        if course.done():
            with contextlib.suppress(SpeechError):
                course.result()
    finally:
        for task in (listening, over, course):
            task.cancel()
        await asyncio.gather(listening, over, course, return_exceptions=True)
    return hearing.check()


async def _course(call: Call, clock: Clock, listen_s: float) -> None:
    # A far end that holds us from the start takes no tone: then it is not played to its end.
    playing = asyncio.create_task(call.play(tone(), TONE_RATE_HZ))
    waiting = asyncio.create_task(clock.sleep_until(clock.now() + TONE_S + SLACK_S))
    try:
        await asyncio.wait({playing, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
    finally:
        for task in (playing, waiting):
            task.cancel()
        await asyncio.gather(playing, waiting, return_exceptions=True)
    await clock.sleep_until(clock.now() + listen_s)


class ReceivedAudio:
    """Counters of received audio; no audio is kept."""

    def __init__(self) -> None:
        self.frames = 0
        self.seconds = 0.0
        self.loud_s = 0.0

    async def follow(self, call: Call) -> None:
        import numpy as np

        async for frame in call.audio():
            self.frames += 1
            self.seconds += len(frame.samples) / frame.rate_hz
            level = float(np.sqrt(np.mean(np.square(frame.samples, dtype=np.float64))))
            if level > LOUD_RMS:
                self.loud_s += len(frame.samples) / frame.rate_hz

    def check(self) -> Check:
        if not self.frames:
            return Check("sound in", Level.WARN, "no audio received")
        if not self.loud_s:
            return Check(
                "sound in", Level.OK, f"{self.seconds:.1f} s received, all silent or very quiet"
            )
        return Check(
            "sound in", Level.OK, f"{self.seconds:.1f} s received, {self.loud_s:.1f} s of it loud"
        )


def sent_audio_check(facts: CallFacts) -> Check:
    stats = facts.media.stats
    if stats is None or not stats.sent:
        return Check("sound out", Level.WARN, "no packet was sent")
    return Check("sound out", Level.OK, f"{stats.sent} packets sent")


def tone() -> NDArray[np.int16]:
    """Return the faded tone, int16 [n] at `TONE_RATE_HZ`."""
    import numpy as np

    count = int(TONE_S * TONE_RATE_HZ)
    wave = np.sin(2 * np.pi * TONE_HZ * np.arange(count) / TONE_RATE_HZ)
    fade = int(FADE_S * TONE_RATE_HZ)
    wave[:fade] *= np.linspace(0.0, 1.0, fade)
    wave[-fade:] *= np.linspace(1.0, 0.0, fade)
    return (wave * TONE_PEAK).astype(np.int16)


def _encrypted(facts: CallFacts) -> str:
    suite = facts.media.srtp
    return f", encrypted ({suite})" if suite else ", not encrypted"
