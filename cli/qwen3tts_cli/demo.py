"""``make demo``: a whole call on this machine, recorded.

Starts a server with the best installed voice, an agent on 127.0.0.1, and a caller over SIP and
RTP. Text arrives one token every 20 ms, as from a language model; the caller interrupts once.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from qwen3tts_cli.calls.phone import local_address
from qwen3tts_cli.latency import show_report
from qwen3tts_cli.options.common import speech_server
from qwen3tts_cli.output.console import note, print_speech_error, results
from qwen3tts_cli.output.exits import exit_code, require_extra, run
from qwen3tts_codecs.wav import WavFile
from qwen3tts_pacer.clock import LoopClock
from qwen3tts_speech.latency import Mark
from qwen3tts_speech.line import Spoken
from qwen3tts_wire.errors import SpeechError

with require_extra("all"):
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.call.text_sources import scripted
    from qwen3tts_phone.detection.core import SpeechDetectionCore
    from qwen3tts_phone.detection.events import OnsetHeard
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.errors import PortBusy
    from qwen3tts_phone.phone import Phone, PhoneSettings

GREETING = (
    "Good morning, this is the Riverside Clinic. You are speaking with an automated assistant. "
    "We are open from 8:30 to 17:00, Monday to Friday. If you would like to book an appointment, "
    "please tell me your name, your date of birth, and the day that suits you best. "
    "If this is an emergency, hang up and dial 112."
)
QUESTION = "Sorry, one question. Are you open on Saturday?"
ANSWER = "On Saturday we are closed, but Dr. Lee is in on Friday until 5 p.m. Goodbye!"
INTERRUPT_AFTER_S = 4.0
"""Barge-in after the agent's first audio."""
TOKEN_MS = 20.0
SIP_PORT = 5060
CALL_WITHIN_S = 60.0
"""Deadline; the call takes about 15 s."""

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Utterance:
    who: str
    spoken: Spoken


class Agent:
    """Agent that answers one call and stops at a barge-in."""

    def __init__(self, phone: Phone, show: Note, said: list[Utterance]) -> None:
        self._phone = phone
        self._show = show
        self._said = said

    async def run(self) -> None:
        call = await anext(self._phone.incoming())
        self._show(f"agent   answers {call.remote_uri}")
        await call.answer()
        async with aclosing(call.hear()) as turns, asyncio.TaskGroup() as group:
            greeting = group.create_task(self._say(call, GREETING))
            await anext(turns)  # the caller's question, at its end
            await greeting
            await self._say(call, ANSWER)
            await call.hangup()

    async def _say(self, call: Call, text: str) -> None:
        self._show("agent   begins to speak while its text is still being written")
        spoken = await call.say(_as_a_model_writes(text))
        self._said.append(Utterance("agent", spoken))
        if spoken.interrupted:
            self._show("agent   hears the caller and is silent with the next frame")


async def caller(phone: Phone, uri: str, show: Note, said: list[Utterance]) -> None:
    show(f"caller  dials {uri}")
    call = await phone.dial(uri)
    await call.answered()
    core = SpeechDetectionCore(ListenSettings(detector="level"), call.clock.now())
    async for frame in call.audio():
        if any(isinstance(event, OnsetHeard) for event in core.push(frame)):
            show("caller  hears the agent's voice")
            break
    await asyncio.sleep(INTERRUPT_AFTER_S)
    show("caller  interrupts with a question")
    said.append(Utterance("caller", await call.say(QUESTION)))
    cause = await call.ended()
    show(f"caller  the call has ended: {cause}")


def _as_a_model_writes(text: str) -> AsyncIterator[str]:
    return scripted(text, LoopClock(), ms_per_token=TOKEN_MS)


async def demo(recording: Path, log: Path) -> None:
    clock = LoopClock()
    began = clock.now()

    def show(message: str) -> None:
        results().print(Text(f"{clock.now() - began:7.3f} s  {message}"))

    said: list[Utterance] = []
    async with speech_server(None) as url:
        show(f"server  speaks at {url}")
        settings = PhoneSettings(
            server_url=url, port=SIP_PORT, record_path=recording, latency_log=log
        )
        async with _phone(settings) as agent_phone, Phone(PhoneSettings(server_url=url)) as mine:
            show(f"agent   waits at {agent_phone.uri}")
            agent = Agent(agent_phone, show, said)
            async with asyncio.timeout(CALL_WITHIN_S), asyncio.TaskGroup() as group:
                group.create_task(agent.run())
                group.create_task(caller(mine, agent_phone.uri, show, said))
    results().print()
    _print_utterances(said, began)
    results().print()
    _print_recording(recording)
    results().print()
    show_report(log)
    results().print()
    _print_next_steps()


def _print_utterances(said: list[Utterance], began: float) -> None:
    table = Table(
        title=f"What was heard when (text arrived one token every {TOKEN_MS:.0f} ms)",
        title_justify="left",
    )
    table.add_column("from (s)", justify="right", no_wrap=True)
    table.add_column("to (s)", justify="right", no_wrap=True)
    table.add_column("who")
    table.add_column("heard, and [dim]never heard[/dim]")
    for each in sorted(said, key=lambda each: each.spoken.record.marks[Mark.FIRST_FRAME_WIRE]):
        marks = each.spoken.record.marks
        first, last = marks[Mark.FIRST_FRAME_WIRE] - began, marks[Mark.LAST_FRAME] - began
        text = Text(each.spoken.heard.strip())
        if rest := each.spoken.remaining.strip():
            text.append(f" [interrupted; never heard: {rest}]", style="dim")
        table.add_row(f"{first:.2f}", f"{last:.2f}", each.who, text)
    results().print(table)


def _phone(settings: PhoneSettings) -> Phone:
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((settings.host, settings.port))
        except OSError:
            note(f"SIP port {settings.port} is taken; another one is used.")
            return Phone(replace(settings, port=0))
    return Phone(settings)


def _print_recording(path: Path) -> None:
    file = WavFile.parse(path.read_bytes())
    rate = file.rate
    both = np.frombuffer(file.data, dtype="<i2").reshape(-1, 2)
    table = Table(
        title=f"The recording: {path} ({len(both) / rate:.1f} s, stereo)", title_justify="left"
    )
    for heading in ("track", "first sound (s)", "last sound (s)", "with sound (s)", "peak"):
        table.add_column(heading, justify="left" if heading == "track" else "right")
    for channel, name in enumerate(("left: caller", "right: agent")):
        track = both[:, channel].astype(np.int32)
        blocks = np.abs(track[: len(track) // 160 * 160]).reshape(-1, 160).max(axis=1) > 200
        loud = np.flatnonzero(blocks)
        first, last = (loud[0] * 0.02, (loud[-1] + 1) * 0.02) if len(loud) else (0.0, 0.0)
        peak = int(np.abs(track).max(initial=0))
        table.add_row(
            name, f"{first:.2f}", f"{last:.2f}", f"{len(loud) * 0.02:.2f}", f"{peak / 32768:.2f}"
        )
    results().print(table)


def _print_next_steps() -> None:
    address = local_address()
    # Plain lines, whatever the terminal's width: commands are there to be copied.
    results().print(
        "Call it yourself with a softphone (Linphone, MicroSIP, baresip, …); no account:\n\n"
        f"  .venv/bin/mr-qwen3tts answer --host {address} --say 'Hello, who is calling?'\n\n"
        f"then dial sip:agent@{address}:{SIP_PORT}\n\n"
        "Or let it call your softphone, and type what it is to say:\n\n"
        "  .venv/bin/mr-qwen3tts call sip:you@ADDRESS-OF-THE-PHONE --stdin\n\n"
        "With --barge-in the caller interrupts it. With --llm http://127.0.0.1:11434/v1\n"
        "--model NAME a language model speaks, and with --stt whisper it listens, too.\n"
        "The rest: .venv/bin/mr-qwen3tts --help",
        markup=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m qwen3tts_cli.demo")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder to write into")
    arguments = parser.parse_args()
    recording, log = arguments.out / "call.wav", arguments.out / "latency.jsonl"
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        run(demo(recording, log))
    except (SpeechError, PortBusy) as error:
        print_speech_error(error)
        return int(exit_code(error))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
