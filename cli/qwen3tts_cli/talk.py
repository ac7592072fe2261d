"""What ``call`` and ``answer`` share: the phone, one call's course, and what is told of it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from qwen3tts_cli.exits import CutShort, needs
from qwen3tts_cli.output import note, printable, results
from qwen3tts_cli.words import Words

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Call, PhoneSettings
    from qwen3tts_speech.line import Spoken

DTMF_KEYS = frozenset("0123456789*#ABCD")
SETTLE_S = 5.0
"""How long a call that has ended may take to tell what was heard."""


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
    voice: str | None
    language: str | None

    def settings(self, server_url: str, *, max_calls: int = 200) -> PhoneSettings:
        """The phone's settings; further calls than ``max_calls`` at once hear the busy tone.

        Raises:
            MissingExtra: the telephone's packages are not installed.
            typer.BadParameter: a registrar without a user.
        """
        with needs("phone"):
            from qwen3tts_phone.phone import PhoneSettings
            from qwen3tts_phone.sip.settings import Account
        account = None
        if self.registrar is not None:
            if self.user is None:
                raise typer.BadParameter("--registrar needs --user.")
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
            voice=self.voice,
            language=self.language,
        )


def checked_digits(digits: str | None) -> str:
    """The keys to press; raises ``typer.BadParameter`` for one that no phone has."""
    wanted = digits or ""
    for position, key in enumerate(wanted, start=1):
        if key.upper() not in DTMF_KEYS:
            raise typer.BadParameter(f"--dtmf: {key!r} (at {position}) is no key of a phone.")
    return wanted.upper()


async def talk(call: Call, words: Words, *, digits: str, max_seconds: float | None) -> None:
    """The course of an answered call: keys, words, hanging up. Tells what was heard.

    Raises:
        CutShort: the call ended, or the time was over, before everything was said.
        SpeechError: the words, the server or the call failed; what had come was said.
    """
    watching = asyncio.create_task(_watch(call))
    ended = asyncio.create_task(_ended(call))
    speaking = asyncio.create_task(_speak(call, words, digits))
    try:
        done, _ = await asyncio.wait(
            {ended, speaking}, timeout=max_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        over_time = not done
        if speaking not in done:
            call.interrupt()
        try:
            async with asyncio.timeout(SETTLE_S if speaking not in done else None):
                spoken = await speaking
        except TimeoutError:
            raise CutShort("the call ended, and what was heard of it is not known.") from None
        _tell(spoken)
        if spoken.interrupted:
            why = "--max-seconds was over" if over_time else "the call ended"
            raise CutShort(f"{why} before everything was said.")
    finally:
        speaking.cancel()
        await call.hangup()
        await ended
        await watching


async def _speak(call: Call, words: Words, digits: str) -> Spoken:
    if digits:
        await call.send_dtmf(digits)
    return await call.say(words.open())


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
    record = spoken.record
    note(f"Heard: {spoken.heard.strip()}")
    if spoken.remaining.strip():
        note(f"Not heard: {spoken.remaining.strip()}")
    facts = []
    if (first := record.first_sound_ms) is not None:
        facts.append(f"first sound {first:.0f} ms after the first word")
    facts.append(f"{record.starvations} gaps" if record.starvations else "no gap")
    note(", ".join(facts).capitalize() + ".")
