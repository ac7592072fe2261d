"""Subcommand ``call``: call a SIP address and speak."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.calls.agent import RECOGNISER, check_agent, whisper_available, with_agent
from qwen3tts_cli.calls.call_run import CallPlan, OnMachine, checked_digits, handle_call
from qwen3tts_cli.calls.event_output import print_events
from qwen3tts_cli.calls.listening_page import ListeningPageOptions, open_listening_page
from qwen3tts_cli.calls.phone import (
    CallOptions,
    Telephone,
    TelephoneOptions,
    check_target,
    local_address,
    print_config_warnings,
    read_config,
    requires_tls,
    telephone_of,
)
from qwen3tts_cli.calls.text import TextOptions, TextSource
from qwen3tts_cli.doctor.preflight import PreflightChecks
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups, speech_server
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.speech import SpeechOptions, note_ignored_options
from qwen3tts_cli.output.console import note, notes
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_cli.output.exits import run as run_loop
from qwen3tts_cli.output.keyboard import typed_by_person
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.diagnosis.outcome import Outcome
    from qwen3tts_phone.phone import Phone


FIRST_OPTIONS = (
    "--say",
    "--file",
    "--stdin",
    "--llm",
    "--model",
    "--prompt",
    "--stt",
    "--voice",
    "--record",
    "--user",
    "--registrar",
    "--config",
)


@dataclass(frozen=True, slots=True)
class PlacedCallOptions:
    uri: Annotated[
        str,
        typer.Argument(
            metavar="SIP_URI",
            help=(
                "SIP address to call, sip:USER@HOST; with --config also a number that the"
                " account's server knows."
            ),
        ),
    ]
    on_machine: Annotated[
        OnMachine | None,
        typer.Option(
            help=(
                "On an answering machine: speak immediately, hang up, or leave the message"
                " after its beep. Default: speak; with the others the text waits for a"
                " person's greeting, too."
            ),
            rich_help_panel="Call",
        ),
    ] = None
    listen: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=3600,
            metavar="SECONDS",
            help=(
                "After the text, stay on the line for this many seconds, print DTMF digits"
                " and recognised speech, then hang up. Default of --stt here: an installed"
                " Whisper model. Only --barge-in lets the callee interrupt."
            ),
            rich_help_panel="Call",
        ),
    ] = None
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Account or trunk of the file for the call; default: the first.",
            rich_help_panel="Telephone",
        ),
    ] = None


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts call sip:bob@127.0.0.1:5070 --say 'Hello Bob.'\n\n"
        "  mr-qwen3tts call sip:100@pbx.example.org --stdin --record call.wav"
        " --registrar sip:pbx.example.org --user 200\n\n"
        "  mr-qwen3tts call sip:bob@127.0.0.1 --llm http://127.0.0.1:11434/v1 --model llama3.2"
        " --stt whisper --prompt 'Ask how the day was.'\n\n"
        "  mr-qwen3tts call sip:bob@127.0.0.1 --say 'Will you come on Friday?' --listen 15"
        " --stt whisper\n\n"
        "  mr-qwen3tts call 100 --config phone.yaml --account office --say 'One moment.'"
        " --transfer sip:200@pbx.example.org"
    )(
        option_groups(
            placed=PlacedCallOptions,
            words=TextOptions,
            run=CallOptions,
            telephone=TelephoneOptions,
            speech_options=SpeechOptions,
            listening=ListenOptions,
            page=ListeningPageOptions,
        )(call)
    )


def call(
    placed: PlacedCallOptions,
    words: TextOptions,
    run: CallOptions,
    telephone: TelephoneOptions,
    speech_options: SpeechOptions,
    listening: ListenOptions,
    page: ListeningPageOptions,
    *,
    server: options.Server = None,
) -> None:
    """[bold]Call[/bold] a SIP address, speak the text as it arrives, and hang up.

    With --llm and --stt hold a conversation with the callee.
    """
    said_words = words.words()
    check_target("--transfer", run.transfer, names=telephone.has_account)
    said = read_config(telephone.config)
    stt_named = listening.stt is not None
    if placed.listen is not None:
        language = speech_options.language or (said.speech.language if said is not None else None)
        listening = for_listen(said_words, listening, language)
    plan = CallPlan(
        checked_digits(run.dtmf),
        run.max_seconds,
        listening,
        run.transfer,
        placed.on_machine
        or OnMachine(said.outbound.on_machine if said is not None else OnMachine.SPEAK),
        said.outbound.answering if said is not None else None,
        placed.listen,
        stt_named=stt_named,
        hearing=said.hearing if said is not None else None,
    )
    check_agent(said_words, plan)
    host = telephone.host
    if said is None and host is None:
        host = local_address(host_of(telephone.registrar or placed.uri))
    made = telephone_of(
        telephone,
        run,
        speech_options,
        said,
        host=host,
        account=placed.account,
        calling=True,
        secure=requires_tls(placed.uri, telephone.registrar),
    )
    made.check()
    print_config_warnings(said)
    run_loop(place(placed.uri, made, said_words, plan, server, page))


def for_listen(words: TextSource, listening: ListenOptions, language: str | None) -> ListenOptions:
    """Return options for ``--listen``: barge-in only on request, Whisper if installed."""
    if listening.barge_in is None and words.chat is None:
        listening = replace(listening, barge_in=False)
    if listening.stt is not None or words.chat is not None:
        return listening
    if not whisper_available(language):
        note("Speech is not recognised without --stt NAME (docs/agent.md).")
        return listening
    return replace(listening, stt="whisper")


def host_of(uri: str) -> str:
    """Return the host of a SIP address; raises ``typer.BadParameter``."""
    with require_extra("phone"):
        from qwen3tts_phone.errors import BadSip
        from qwen3tts_phone.sip.message.fields import parse_uri
    try:
        return parse_uri(uri).host.strip("[]")
    except BadSip as error:
        raise typer.BadParameter(f"{error.message} Write it as sip:USER@HOST:PORT.") from None


async def place(
    uri: str,
    telephone: Telephone,
    words: TextSource,
    plan: CallPlan,
    server: str | None,
    page: ListeningPageOptions | None = None,
) -> None:
    """Place one call, retried by the file's retry rules, after concurrent preflight checks."""
    with require_extra("phone"):
        from qwen3tts_phone.dialling.retries import RetryPolicy, place_with_retries
        from qwen3tts_phone.phone import Phone
    retry = telephone.config.outbound.retry if telephone.config is not None else None
    async with AsyncExitStack() as stack, PreflightChecks() as ready:
        enter = stack.enter_async_context
        prepared = await enter(with_agent(words, plan, ready, telephone.language))
        url = await ready.run_step(enter(speech_server(telephone.server_url(server))))
        speech_options = await ready.run_step(telephone.speech_options.voiced_at(url))
        phone = await ready.run_step(enter(Phone(telephone.settings(url, speech_options))))
        if RECOGNISER in await ready.finish():
            prepared = replace(prepared, recogniser=None)
        note_ignored_options(phone.ignored)
        await open_listening_page(
            stack, page or ListeningPageOptions(), phone.settings, phone=phone
        )
        attempts = Attempts(phone, uri, telephone, words, prepared)
        await place_with_retries(
            attempts.attempt,
            retry or RetryPolicy(attempts=1),
            now=phone.clock.now,
            sleep_until=phone.clock.sleep_until,
            number=uri,
            waiting=print_retry,
        )
    if attempts.error is not None:
        raise attempts.error


class Attempts:
    def __init__(
        self, phone: Phone, uri: str, telephone: Telephone, words: TextSource, plan: CallPlan
    ) -> None:
        self._phone = phone
        self._uri = uri
        self._telephone = telephone
        self._words = words
        self._course = plan
        self.error: SpeechError | None = None
        """Reason of the last failure; None: completed."""

    async def attempt(self, number: int) -> Outcome:
        from qwen3tts_phone.diagnosis.outcome import Outcome, outcome_of, outcome_of_error

        if number > 1:
            note(f"Call number {number}.")
        self.error = None
        watching: asyncio.Task[None] | None = None
        placed: Call | None = None
        try:
            with _calling(self._words):
                placed = await self._phone.dial(
                    self._uri,
                    dict(self._telephone.headers),
                    account=self._telephone.account,
                    on_machine=self._course.on_machine.value,
                    answering=self._course.answering,
                )
                watching = asyncio.create_task(print_events(placed))
                up = await placed.up()
                if up is not placed:  # another call took its place while it rang
                    placed, watching = up, None
        except SpeechError as error:
            self.error = error
            if placed is not None and placed.facts.end is not None:
                return outcome_of(placed.facts)
            return outcome_of_error(error)
        finally:
            if self.error is not None and watching is not None:
                watching.cancel()
        try:
            await handle_call(placed, self._words, self._course, watching)
        except SpeechError as error:
            self.error = error
        return Outcome.ANSWERED


def _calling(words: TextSource) -> AbstractContextManager[object]:
    if words.stdin and typed_by_person():
        note("Calling …")
        return nullcontext()
    return notes().status("Calling …")


def print_retry(outcome: Outcome, wait_s: float) -> None:
    from qwen3tts_phone.diagnosis.outcome import OUTCOME_WORDS

    note(f"No call: {OUTCOME_WORDS[outcome]}. Next attempt in {wait_s:.0f} s.")
