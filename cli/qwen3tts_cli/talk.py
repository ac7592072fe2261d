"""What ``call`` and ``answer`` share: the phone, one call's course, and what is told of it."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.barge_in import BargeIn
from qwen3tts_cli.exits import CutShort, needs
from qwen3tts_cli.manner import Manner
from qwen3tts_cli.output import note, printable, results
from qwen3tts_cli.words import Words

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Call, PhoneSettings
    from qwen3tts_speech.line import Spoken, Utterance

ELSEWHERE = "192.0.2.1"
"""Stands for any other machine (RFC 5737)."""
DTMF_KEYS = frozenset("0123456789*#ABCD")
MAX_REST_CHARS = 200
"""So much is shown of what was not heard."""


@dataclass(frozen=True, slots=True)
class Telephone:
    """Everything about the phone that the command line says."""

    host: str
    port: int
    user: str | None
    password_env: str
    registrar: str | None
    record: Path | None
    latency_log: Path | None
    manner: Manner

    def check(self) -> None:
        """Refuse what cannot work; it is better known before a phone rings.

        Raises:
            typer.BadParameter: a registrar without a user, or a file where none can be.
        """
        if self.registrar is not None and self.user is None:
            raise typer.BadParameter("--registrar needs --user.")
        for option, path in (("--record", self.record), ("--latency-log", self.latency_log)):
            if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
                raise typer.BadParameter(
                    f"{option}: {path} cannot be written; check folder and rights."
                )

    def settings(
        self, server_url: str, manner: Manner | None = None, *, max_calls: int = 200
    ) -> PhoneSettings:
        """The phone's settings; further calls than ``max_calls`` at once hear the busy tone.

        ``manner``: its own with the voice that the server made for it, where it made one.

        Raises:
            MissingExtra: the telephone's packages are not installed.
        """
        with needs("phone"):
            from qwen3tts_phone.phone import PhoneSettings
            from qwen3tts_phone.sip.settings import Account
        manner = manner or self.manner
        account = None
        if self.registrar is not None:
            assert self.user is not None
            password = os.environ.get(self.password_env, "")
            account = Account(registrar=self.registrar, user=self.user, password=password)
        return PhoneSettings(
            host=self.host,
            port=self.port,
            server_url=server_url,
            account=account,
            user=self.user or "agent",
            max_calls=max_calls,
            record_path=self.record,
            latency_log=self.latency_log,
            voice=manner.voice,
            language=manner.language,
            options=manner.options,
        )


def local_address(host: str = ELSEWHERE) -> str:
    """The address of this machine from which packets to ``host`` leave; nothing is sent."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        # Dialling will say what is wrong with it.
        return "127.0.0.1"


def checked_digits(digits: str | None) -> str:
    """The keys to press; raises ``typer.BadParameter`` for one that no phone has."""
    wanted = digits or ""
    for position, key in enumerate(wanted, start=1):
        if key.upper() not in DTMF_KEYS:
            raise typer.BadParameter(f"--dtmf: {key!r} (at {position}) is no key of a phone.")
    return wanted.upper()


@dataclass(frozen=True, slots=True)
class Course:
    """How a call is gone about, besides its words."""

    digits: str = ""
    """Keys to press before anything is said."""
    max_seconds: float | None = None
    barge_in: bool = False
    """Whether the caller's voice silences what is being said."""


async def talk(call: Call, words: Words, course: Course) -> None:
    """See an answered call through: keys, words, hanging up. Tells what was heard.

    Raises:
        CutShort: the call ended, or the time was over, before everything was said; or there was
            nothing to say.
        SpeechError: the words, the server or the call failed; what had come was said.
    """
    watching = asyncio.create_task(_watch(call))
    ended = asyncio.create_task(_ended(call))
    speech = CallSpeech(call, words)
    speaking = asyncio.create_task(speech.run(course))
    try:
        done, _ = await asyncio.wait(
            {ended, speaking}, timeout=course.max_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if speaking in done:
            speaking.result()
        why = "the call ended" if done else "--max-seconds was over"
    finally:
        speaking.cancel()
        # It also stops and settles what is being said, so that it is known what was heard.
        await call.hangup()
        await ended
        await watching
        await asyncio.wait([speaking])
        speech.tell()
    if speech.cut_short:
        raise CutShort(f"{why} before everything was said.")
    if not speech.heard_samples:
        raise CutShort("there was nothing to say.", remedy="Give some words to say.")


class CallSpeech:
    """What is said on one call; each interruption by the caller ends one utterance of it."""

    def __init__(self, call: Call, words: Words) -> None:
        self._call = call
        self._words = words
        self._utterance: Utterance | None = None
        self._stopped_by_caller = False
        self.cut_short = True
        """Whether something was left to say, and the caller did not want it so."""
        self.heard_samples = 0
        """Of all utterances, at 24 kHz."""

    async def run(self, course: Course) -> None:
        """Press the keys, then say the words to their end, or until the caller interrupts.

        What is typed after an interruption is said. Other words have no continuation: the caller
        may finish what he has to say.
        """
        if course.digits:
            await self._call.send_dtmf(course.digits)
        barge_in = BargeIn(self._call)
        listening = asyncio.create_task(barge_in.listen()) if course.barge_in else None
        try:
            while True:
                await self._say()
                self._stopped_by_caller = self._utterance in barge_in.stopped
                if not self._stopped_by_caller:
                    return
                note("The caller interrupts.")
                if not self._words.stdin:
                    await barge_in.quiet.wait()
                    return
                self.tell()
        finally:
            if listening is not None:
                listening.cancel()

    async def _say(self) -> None:
        self._stopped_by_caller = False
        self._utterance = self._call.speak(self._words.open())
        await self._utterance.spoken()

    def tell(self) -> None:
        """What was heard of the last utterance, and how promptly; once."""
        if self._utterance is None:
            return
        spoken = self._utterance.outcome()
        self.cut_short = spoken.interrupted and not self._stopped_by_caller
        self.heard_samples += spoken.position
        _tell(spoken)
        self._utterance = None


async def _ended(call: Call) -> None:
    cause = await call.ended()
    note(f"The call has ended: {cause}.")


async def _watch(call: Call) -> None:
    """Tell what happens on the call; it ends with the call."""
    from qwen3tts_phone import call_events as events

    async for event in call.events:
        match event:
            case events.CallAnswered(codec=codec):
                note(f"Answered ({codec}).")
            case events.KeyPressed(digit=digit):
                results().print(f"key {printable(digit)}", markup=False)
            case events.CallHeld():
                note("On hold: speech waits.")
            case events.CallResumed():
                note("Off hold.")
            case events.MediaSilent(silent_s=silent_s):
                note(f"Nothing has come from the other side for {silent_s:.0f} s.")
            case _:
                pass


def _tell(spoken: Spoken) -> None:
    """What was heard, and how promptly."""
    heard, rest = spoken.heard.strip(), spoken.remaining.strip()
    note(f"Heard: {heard}" if heard else "Nothing was heard.")
    if rest:
        note(f"Not heard: {_shortened(rest)}")
    record = spoken.record
    if (first := record.first_sound_ms) is not None:
        gaps = "1 gap" if record.starvations == 1 else f"{record.starvations or 'no'} gaps"
        note(f"First sound {first:.0f} ms after the first word, {gaps}.")


def _shortened(text: str) -> str:
    if len(text) <= MAX_REST_CHARS:
        return text
    return f"{text[:MAX_REST_CHARS]}… ({len(text)} characters in all)"
