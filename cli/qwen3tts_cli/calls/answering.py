"""Incoming calls of ``answer``, one task each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from logging import getLogger
from typing import TYPE_CHECKING, Protocol, TypeVar

from qwen3tts_cli.calls.agent import with_agent
from qwen3tts_cli.calls.call_run import CallPlan, handle_call
from qwen3tts_cli.calls.lines import SIP, LineOptions, Ports
from qwen3tts_cli.calls.listening_page import ListeningPageOptions, open_listening_page
from qwen3tts_cli.calls.phone import Telephone, local_address
from qwen3tts_cli.calls.text import TextSource
from qwen3tts_cli.doctor.preflight import PreflightChecks
from qwen3tts_cli.options.common import speech_server
from qwen3tts_cli.options.speech import SpeechOptions, note_ignored_options
from qwen3tts_cli.output.console import note, print_speech_error, task_label
from qwen3tts_cli.output.exits import at_first_sigterm, first_error, require_extra
from qwen3tts_cli.serving import is_loopback
from qwen3tts_cli.voices import shown_voice
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_phone.call.call import Call
    from qwen3tts_phone.phone import Phone
    from qwen3tts_phone.sip import AccountEvent
    from qwen3tts_phone.streams.server import Streams
    from qwen3tts_speech.link import SpeechLink


log = getLogger(__name__)

T = TypeVar("T")


async def answer_calls(
    telephone: Telephone,
    words: TextSource,
    plan: CallPlan,
    server: str | None,
    lines: LineOptions | None = None,
    ports: Ports | None = None,
    page: ListeningPageOptions | None = None,
) -> None:
    """Answer calls; with ``lines.once`` raise the error of the one call.

    SIGTERM stops accepting calls; active calls have ``lines.drain_seconds``.
    """
    with require_extra("phone"):
        from qwen3tts_phone.phone import Phone
    lines = lines or LineOptions()
    once = lines.once or words.once
    async with AsyncExitStack() as stack, PreflightChecks(goes_on=True) as ready:
        plan = await stack.enter_async_context(with_agent(words, plan, ready, telephone.language))
        url = await ready.run_step(
            stack.enter_async_context(speech_server(telephone.server_url(server)))
        )
        speech_options = await ready.run_step(telephone.speech_options.voiced_at(url))
        await ready.finish()
        if words.file is not None:
            note(f"Text: {words.file} is ready.")
        settings = telephone.settings(url, speech_options, max_calls=1 if once else None)
        ours = telephone.server_url(server) is None
        changes = RegistrationPrinter()
        sources: list[CallSource] = []
        phone: Phone | None = None
        streams: Streams | None = None
        if SIP in lines.kinds:
            phone = await stack.enter_async_context(
                Phone(settings, on_account=changes, announce=None)
            )
            sources.append(phone)
            note_ignored_options(phone.ignored)
            if not ours:
                await print_voice(phone.link, speech_options)
            print_addresses(phone)
        streaming = lines.stream_settings(settings, ports or lines.ports(None))
        if streaming is not None:
            from qwen3tts_phone.streams.server import Streams

            streams = await stack.enter_async_context(Streams(streaming))
            sources.append(streams)
            if not ours and phone is None:
                await print_voice(streams.link, speech_options)
            print_stream_listeners(streams)
        further = [] if streams is None else [streams]
        await open_listening_page(
            stack,
            page or ListeningPageOptions(),
            settings,
            phone=phone,
            further=further,
            agent=plan.agent,
        )
        changes.announced = True
        reception = AnswerService(sources, words, plan, dict(telephone.headers))
        stop = asyncio.Event()
        with at_first_sigterm(stop.set):
            await (reception.one(stop) if once else reception.all(stop, lines.drain_seconds))


class RegistrationPrinter:
    def __init__(self) -> None:
        self.announced = False
        """Whether the initial state was printed."""

    def __call__(self, event: AccountEvent) -> None:
        if self.announced:
            note(event.words)


class CallSource(Protocol):
    """Source of incoming calls: a phone or a media stream server."""

    def incoming(self) -> AsyncIterator[Call]: ...

    async def drain(self) -> None: ...


class AnswerService:
    """Service that answers incoming calls."""

    def __init__(
        self,
        lines: Sequence[CallSource],
        words: TextSource,
        plan: CallPlan,
        headers: dict[str, str] | None = None,
    ) -> None:
        self._lines = lines
        self._words = words
        self._course = plan
        self._headers = headers or {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def one(self, stop: asyncio.Event) -> None:
        """Handle the first call; return early at ``stop``."""
        waiting = asyncio.create_task(self._first())
        call = await _unless(stop, waiting)
        if call is not None:
            await converse(call, self._words, self._course, self._headers)

    async def all(self, stop: asyncio.Event, drain_s: float) -> None:
        """Handle calls until ``stop``; active calls then have ``drain_s`` seconds."""
        taking = asyncio.create_task(self._take_all())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({taking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if taking.done():
                taking.result()
            # What has come before the drain is still taken while it begins.
            await asyncio.gather(*(line.drain() for line in self._lines))
            taking.cancel()
            await self._let_them_end(drain_s)
        finally:
            for task in (taking, stopping, *self._under_way):
                task.cancel()
            await asyncio.gather(taking, stopping, *self._under_way, return_exceptions=True)

    async def _first(self) -> Call | None:
        async with aclosing(self._incoming()) as calls:
            async for call in calls:
                note(f"{caller_of(call)} calls{_account_of(call)}.")
                return call
        return None

    async def _take_all(self) -> None:
        async with aclosing(self._incoming()) as calls:
            async for call in calls:
                note(f"{caller_of(call)} calls{_account_of(call)}.")
                task = asyncio.create_task(
                    converse_isolated(call, self._words, self._course, self._headers)
                )
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)

    async def _incoming(self) -> AsyncGenerator[Call, None]:
        come: asyncio.Queue[Call | None] = asyncio.Queue()

        async def take(line: CallSource) -> None:
            try:
                async for call in line.incoming():
                    come.put_nowait(call)
            finally:
                come.put_nowait(None)

        taking = [asyncio.create_task(take(line)) for line in self._lines]
        try:
            for _ in self._lines:
                while (call := await come.get()) is not None:
                    yield call
            await asyncio.gather(*taking)
        finally:
            for task in taking:
                task.cancel()
            await asyncio.gather(*taking, return_exceptions=True)

    async def _let_them_end(self, drain_s: float) -> None:
        if not self._under_way:
            return
        count = len(self._under_way)
        calls = "one call" if count == 1 else f"{count} calls"
        note(f"No new calls are accepted; {calls} may still run for {drain_s:.0f} s.")
        await asyncio.wait(self._under_way, timeout=drain_s)
        if self._under_way:
            note("Drain timeout: the remaining calls are hung up.")


async def _unless(stop: asyncio.Event, task: asyncio.Task[T]) -> T | None:
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        stopping.cancel()
        task.cancel()


async def print_voice(link: SpeechLink, speech_options: SpeechOptions) -> None:
    """Print the voice of a remote server; an own server prints it at start."""
    client = await link.client()
    note(f"Voice: {shown_voice(client.session, speech_options.voice)} at {link.url} is ready.")


def print_addresses(phone: Phone) -> None:
    listen = phone.settings.sip
    hosts = listen.hosts if listen is not None else (phone.settings.host,)
    note(f"Waiting for calls at {shown_uri(phone.uri, hosts[0])}.")
    for line in phone.registrations.values():
        note(f"The account {line.words.rstrip('.')}.")
    if all(map(is_loopback, hosts)):
        note(f"Only this machine can call. For others: --host {local_address()}")


def print_stream_listeners(streams: Streams) -> None:
    host = streams.settings.host
    shown = local_address() if host in ("0.0.0.0", "::") else host
    shown = f"[{shown}]" if ":" in shown else shown
    scheme = "wss" if streams.settings.certificate is not None else "ws"
    for name in streams.kinds:
        note(f"Waiting for calls at {scheme}://{shown}:{streams.port}/{name}.")
    if streams.audiosocket_port:
        note(f"Waiting for calls at {shown}:{streams.audiosocket_port} (audiosocket).")
    if is_loopback(host):
        note(f"Only this machine can stream. For others: --host {local_address()}")


def caller_of(call: Call) -> str:
    who = call.remote_uri or "Somebody"
    return who if call.line == SIP else f"{who} ({call.line})"


def _account_of(call: Call) -> str:
    return f" for {call.account}" if call.account else ""


def shown_uri(uri: str, host: str) -> str:
    """Return a dialable address; a wildcard bind is replaced by a local address."""
    if host not in ("0.0.0.0", "::"):
        return uri
    return f"{uri.partition('@')[0]}@{local_address()}:{uri.rpartition(':')[2]}"


async def converse(
    call: Call, words: TextSource, plan: CallPlan, headers: dict[str, str] | None = None
) -> None:
    await (call.answer(headers) if headers else call.answer())
    await handle_call(call, words, plan)


async def converse_isolated(
    call: Call, words: TextSource, plan: CallPlan, headers: dict[str, str] | None = None
) -> None:
    """Run `converse` with the caller's name in notes; an error ends this call only."""
    task_label.set(call.remote_uri or call.id)
    try:
        await converse(call, words, plan, headers)
    except Exception as failure:
        error = first_error(failure)
        if isinstance(error, SpeechError):
            print_speech_error(error)
        else:
            log.exception("a call failed")
