"""Language model agent of ``call`` and ``answer``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from qwen3tts_cli.calls.call_run import CallPlan, shortened
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.doctor.preflight import NAME, PreflightChecks, check_chat, check_words
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.output.console import note
from qwen3tts_cli.output.exits import require_extra

if TYPE_CHECKING:
    from qwen3tts_agent.agent import Agent
    from qwen3tts_agent.settings import AgentSettings
    from qwen3tts_agent.turn_log import OnTurn
    from qwen3tts_agent.turn_record import TurnRecord
    from qwen3tts_phone.detection.recogniser import Recogniser

TRANSFER_NAME = "person"
"""Name of the --transfer target for the model."""
RECOGNISER = "Recogniser"
"""Name of the recogniser's preflight check."""


def check_agent(words: TextSource, plan: CallPlan) -> None:
    """Refuse an agent that cannot work; raises ``typer.BadParameter``, SpeechError."""
    listening = plan.listening
    if plan.listen_s is not None and words.chat is not None and listening.stt is not None:
        raise typer.BadParameter("--listen: the agent listens already. Omit --listen or --stt.")
    if listening.stt is not None and words.chat is None and plan.listen_s is None:
        raise typer.BadParameter(
            "--stt recognises speech, which needs an agent: give --llm URL in place of"
            " other text. Or print what is recognised after yours: add --listen SECONDS."
        )
    check_words(words, listening)
    if listening.stt is not None or listening.listens or plan.listen_s is not None:
        settings = plan.listen_settings()
        with require_extra("phone"):
            from qwen3tts_phone.detection.smart_turn import turn_detector_of
            from qwen3tts_phone.detection.vad import make_detector
        make_detector(settings.detector)
        if (turn_detector := turn_detector_of(settings)) is not None:
            turn_detector.check()
    if listening.stt is not None:
        recogniser_of(listening)
        if words.chat is not None:
            agent_settings(words, plan)


def whisper_available(language: str | None) -> bool:
    """Return whether an installed Whisper model recognises this language in real time."""
    from qwen3tts_wire.whisper.guards import UnknownLanguage, codes_of
    from qwen3tts_wire.whisper.models import HEAVY, ModelMissing, find_model, package

    try:
        package("ctranslate2")
        found = find_model(languages=codes_of(_codes(language)), offline=True)
    except (ModelMissing, UnknownLanguage):
        return False
    return found.name.removesuffix(".en") not in HEAVY


def _codes(language: str | None) -> tuple[str, ...]:
    return (language.replace("_", "-").partition("-")[0],) if language else ()


def recogniser_of(listening: ListenOptions, language: str | None = None) -> Recogniser:
    assert listening.stt is not None
    with require_extra("phone"):
        from qwen3tts_agent.recognition.kinds import recogniser_named
    return recogniser_named(listening.stt, **({"languages": _codes(language)} if language else {}))


@asynccontextmanager
async def with_agent(
    words: TextSource, plan: CallPlan, ready: PreflightChecks, language: str | None = None
) -> AsyncIterator[CallPlan]:
    """Add the configured agent, and start the checks of its model and recogniser."""
    if words.chat is not None and plan.listening.check_seconds:
        ready.start(NAME, check_chat(words.chat, plan.listening.check_seconds))
    if plan.listening.stt is None:
        yield plan
        return
    recogniser = recogniser_of(plan.listening, language)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(recogniser.close)  # the agent ends those alone that it has made
        if words.chat is None:
            check = _warmed(recogniser, recogniser, plan.listening.stt)
            ready.start(RECOGNISER, check, optional=not plan.stt_named)
            yield replace(plan, recogniser=recogniser)
            return
        agent = await stack.enter_async_context(make_agent(words, plan, recogniser))
        ready.start(RECOGNISER, _warmed(agent, recogniser, plan.listening.stt))
        yield replace(plan, agent=agent)


async def _warmed(listener: Agent | Recogniser, recogniser: Recogniser, stt: str) -> str:
    from qwen3tts_agent.recognition.whisper import WhisperRecogniser

    await listener.warm()
    if isinstance(recogniser, WhisperRecogniser):
        stt = (await recogniser.check()).line
    return f"{stt} is ready."


def make_agent(
    words: TextSource,
    plan: CallPlan,
    recogniser: Recogniser | None = None,
    on_turn: OnTurn | None = None,
) -> Agent:
    """Return the configured agent; raises ``typer.BadParameter``, BadRequest, OSError."""
    with require_extra("phone"):
        from qwen3tts_agent.agent import Agent
    listening = plan.listening
    assert words.chat is not None
    return Agent(
        words.chat,
        system=words.system,
        greeting=listening.greeting or "",
        stt=recogniser or (recogniser_of(listening) if listening.stt is not None else None),
        listen=plan.listen_settings(),
        settings=agent_settings(words, plan),
        log=listening.conversation_log,
        on_turn=on_turn or partial(print_turn, words=listening.transcript),
    )


def agent_settings(words: TextSource, plan: CallPlan) -> AgentSettings:
    with require_extra("phone"):
        from qwen3tts_agent.settings import AgentSettings
    listening = plan.listening
    changes: dict[str, Any] = {"hang_up_tool": True, "log_words": listening.transcript}
    if listening.greeting is None:
        changes["greeting_prompt"] = words.prompt
    if listening.filler is not None:
        changes["filler"] = (listening.filler,)
    if listening.preemptive is not None:
        changes["preemptive"] = "auto" if listening.preemptive else "off"
    if plan.max_seconds is not None:
        changes["max_minutes"] = plan.max_seconds / 60
    if plan.transfer is not None:
        changes["transfers"] = {TRANSFER_NAME: plan.transfer}
    try:
        return AgentSettings(**changes)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


def print_turn(_: object, turn: TurnRecord, *, words: bool) -> None:
    if words and turn.text:
        note(f"Caller: {turn.text}")
    if words and turn.heard.strip():
        note(f"Agent: {turn.heard.strip()}")
    if words and turn.interrupted and turn.unsaid.strip():
        note(f"Not heard: {shortened(turn.unsaid.strip())}")
    details = []
    if turn.kind == "caller" and (wait := turn.ms("first_audible")) is not None:
        details.append(f"heard {wait:.0f} ms after the caller's last word")
    if turn.guess_used:
        details.append("prepared in the caller's pause")
    if turn.interrupted:
        details.append("interrupted by the caller")
    more = f": {', '.join(details)}" if details else ""
    note(f"Turn {turn.number} ({TURN_KINDS[turn.kind]}){more}.")
    if turn.error is not None:
        note(f"{turn.error.message} {turn.error.remedy}".rstrip())


TURN_KINDS = {
    "greeting": "the greeting",
    "caller": "an answer",
    "quiet": "the caller is silent",
    "not_understood": "not understood",
    "goodbye": "good bye",
    "continued": "continued",
}
