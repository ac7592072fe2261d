"""A stand-in for mr_sip that keeps every chunk it is given, and when.

The real mr_sip needs a SIP account and a provider of speech recognition, so it is not here. This
plugin offers the services that mr_sip offers to a plugin that speaks, in the two forms that mr_sip
has had, and answers as mr_sip does: True for what it takes, False without a call or while halted.
``RECORDING_SIP`` says which form: ``new`` (with ``timestamp``, start, end and halt), ``old`` (only
``sip_audio_out_chunk(audio_chunk, context)``), or ``none``. What a caller would have heard follows
from the record, by ``tests/mindroot_host/playout.py``.

Its routes, for the tests: the record of a call, what a telephone does to it (halt, resume, the far
end hangs up), and the host's own services as mr_sip calls them (cancel_active_response,
cancel_and_wait).
"""

from __future__ import annotations

import base64
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request

from lib.chatcontext import get_context
from lib.pipelines.pipe import pipe
from lib.providers.commands import command, command_manager
from lib.providers.hooks import hook, hook_manager
from lib.providers.services import service, service_manager

FORM = os.environ.get("RECORDING_SIP", "new")
router = APIRouter(prefix="/recording_sip")


@dataclass
class Line:
    """One call."""

    up: bool = True
    halted: bool = False
    open: bool = False
    spoken: int = 0
    """Bytes taken since the response was started."""
    events: list[tuple[float, str, Any]] = field(default_factory=list)
    """Seconds of time.perf_counter(), what, and what belongs to it."""

    def note(self, what: str, value: Any = None) -> float:
        now = time.perf_counter()
        self.events.append((now, what, value))
        return now


lines: dict[str, Line] = {}
mixed_up: dict[str, str] = {}
"""The command manager is given the context of the second call before a command of the first."""


def line_of(context: Any) -> Line:
    return lines.setdefault(context.log_id, Line())


def take(audio_chunk: bytes, context: Any) -> bool:
    if context is None or not context.log_id:
        return False
    line = line_of(context)
    if not line.up or line.halted:
        line.note("refused", len(audio_chunk))
        return False
    if not line.open:
        start(line)
    line.spoken += len(audio_chunk)
    line.note("chunk", base64.b64encode(audio_chunk).decode())
    return True


def start(line: Line) -> None:
    line.open = True
    line.spoken = 0
    line.note("start")


if FORM == "new":

    @service()
    async def sip_audio_out_chunk(
        audio_chunk: bytes, timestamp: float | None = None, context: Any = None
    ) -> bool:
        """Take sound for the caller: mu-law, 8 kHz."""
        return take(audio_chunk, context)

    @service()
    async def sip_start_audio_response(context: Any = None) -> bool:
        """A response begins; what of the last one was not sent is thrown away."""
        line = line_of(context)
        if line.up:
            start(line)
        return line.up

    @service()
    async def sip_end_audio_response(context: Any = None) -> bool:
        """The response has ended."""
        line = line_of(context)
        line.open = False
        line.note("end")
        return line.up

    @service()
    async def sip_is_audio_halted(context: Any = None) -> bool:
        """Whether the caller has cut in."""
        return line_of(context).halted

    @service()
    async def sip_halt_audio(context: Any = None) -> dict[str, Any]:
        """The caller has cut in."""
        return {"status": "halted", "at": halt(line_of(context))}

    @service()
    async def sip_resume_audio(context: Any = None) -> bool:
        """The caller's words have been understood; an answer may be given."""
        line = line_of(context)
        line.halted = False
        line.note("resume")
        return True

    @service()
    async def sip_response_spoken_seconds(context: Any = None) -> float:
        """Seconds of the response that were handed over."""
        return line_of(context).spoken / 8000

elif FORM == "old":

    @service()
    async def sip_audio_out_chunk(audio_chunk: bytes, context: Any = None) -> bool:  # type: ignore[misc]
        """Take sound for the caller: mu-law, 8 kHz."""
        return take(audio_chunk, context)


def halt(line: Line) -> float:
    line.halted = True
    line.open = False
    return line.note("halt")


if FORM != "none":

    @command()
    async def hangup(context: Any = None) -> str:
        """End the call. Example: { "hangup": {} }"""
        line = line_of(context)
        line.note("hangup")
        line.up = False
        return "The call was ended."

    @command()
    async def send_dtmf(digits: str, context: Any = None) -> None:
        """Press keys. Example: { "send_dtmf": { "digits": "1" } }"""
        line_of(context).note("dtmf", digits)


@pipe(name="partial_command", priority=0)
async def saw_partial(data: dict[str, Any], context: Any = None) -> dict[str, Any]:
    params = data.get("params")
    text = params.get("text") if isinstance(params, dict) else params
    if data.get("command") == "speak" and text:
        line_of(context).note("partial", len(str(text)))
    return data


@hook()
async def on_interrupt(context: Any = None) -> None:
    # Hooks run in the order in which plugins were loaded, and this one is loaded last.
    line_of(context).note("interrupted")


@router.get("/line/{log_id}")
async def get_line(log_id: str) -> dict[str, Any]:
    line = lines.get(log_id, Line())
    return {"now": time.perf_counter(), "up": line.up, "events": line.events}


@router.delete("/line/{log_id}")
async def forget_line(log_id: str) -> dict[str, Any]:
    """The record so far, which is not kept: in a long test it would be what the memory grows by."""
    line = lines.get(log_id, Line())
    events, line.events = line.events, []
    return {"events": events}


@router.post("/line/{log_id}/{what}")
async def post_line(log_id: str, what: str, request: Request) -> dict[str, float]:
    """What happens to the call; the answer says when it was begun and when it was done."""
    context = await get_context(log_id, request.state.user.username)
    line = line_of(context)
    asked = line.note(f"asked {what}")
    match what:
        case "nothing":
            pass
        case "halt":
            halt(line)
        case "resume":
            line.halted = False
            line.note("resume")
        case "gone":
            line.up = False
            line.note("gone")
        case "on_interrupt":
            await hook_manager.on_interrupt(context=context)
        case "cancel_active_response":
            await service_manager.cancel_active_response(log_id=log_id, context=context)
        case "cancel_and_wait":
            await service_manager.cancel_and_wait(
                session_id=log_id, user=context.username, context=context
            )
        case "next_utterance":
            # What mr_sip does with each new utterance of the caller.
            seconds = line.spoken / 8000
            await service_manager.cancel_and_wait(
                session_id=log_id, user=context.username, context=context
            )
            await service_manager.truncate_last_assistant_speech(
                spoken_seconds=seconds, context=context
            )
            line.halted = False
            line.note("resume")
        case _:
            raise ValueError(what)
    return {"asked": asked, "done": line.note(f"done {what}")}


@router.post("/mix_up/{log_id}/{other}")
async def mix_up(log_id: str, other: str) -> None:
    """From now on a command of the one call is given the context of the other."""
    mixed_up[log_id] = other


@router.get("/stream_tts/{log_id}")
async def stream_tts(
    log_id: str, request: Request, words: str, output_format: str = "ulaw_8000", most: int = 0
) -> dict[str, Any]:
    """The service of that name, called as another plugin calls it; ``most`` chunks, 0: all."""
    context = await get_context(log_id, request.state.user.username)
    chunks: list[str] = []
    async for chunk in await service_manager.stream_tts(
        text=words, output_format=output_format, context=context
    ):
        chunks.append(base64.b64encode(chunk).decode())
        if most and len(chunks) == most:
            break
    return {"chunks": chunks}


@router.get("/memory")
def memory() -> dict[str, int]:
    """What this process holds, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"resident": pages * os.sysconf("SC_PAGE_SIZE")}


async def on_load(app: FastAPI) -> None:
    app.include_router(router)
    # The host sets the global context and then awaits this service: between the two awaits another
    # call may set its own. Here it can be made to happen.
    entry = service_manager.functions["running_command"][0]
    original = entry["implementation"]

    async def running_command(*args: Any, **kwargs: Any) -> Any:
        answer = await original(*args, **kwargs)
        context = kwargs.get("context")
        other = mixed_up.get(context.log_id) if context is not None else None
        if context is not None and other is not None:
            line_of(context).note("mixed up")
            command_manager.context = await get_context(other, context.username)
        return answer

    entry["implementation"] = running_command
