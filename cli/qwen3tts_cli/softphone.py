"""Subcommand ``softphone``: a browser page for calls."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import webbrowser
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.calls.agent import check_agent, with_agent
from qwen3tts_cli.calls.call_run import CallPlan
from qwen3tts_cli.calls.phone import Telephone, local_address, print_config_warnings, read_config
from qwen3tts_cli.calls.text import TextSource, chat_of
from qwen3tts_cli.doctor.preflight import PreflightChecks
from qwen3tts_cli.options import common as options
from qwen3tts_cli.options.common import option_groups, speech_server
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_cli.options.page import PageOptions, parsed_servers
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.console import note, notes, results
from qwen3tts_cli.output.exits import require_extra, run
from qwen3tts_cli.output.writable import check_writable
from qwen3tts_cli.serving import is_loopback

if TYPE_CHECKING:
    from qwen3tts_phone.phone import Phone
    from qwen3tts_phone.settings.sections import PhoneConfig
    from qwen3tts_phone.softphone.server import Softphone
    from qwen3tts_phone.softphone.settings import SoftphoneSettings


FIRST_OPTIONS = (
    "--open",
    "--host",
    "--port",
    "--voice",
    "--llm",
    "--model",
    "--stt",
    "--greeting",
    "--sip",
    "--config",
    "--server",
    "--recordings",
)


def print_softphone(softphone: Softphone, *, open_it: bool = False) -> None:
    """Print the page's address, the URL alone on standard output; ``open_it``: open a browser."""
    host = softphone.settings.host
    note("The softphone is ready. Open this address; it ends with the access token:")
    results().print(softphone.url, markup=False)
    if is_loopback(host):
        note(f"Only this machine can open it. For others: --host {local_address()}")
    else:
        note("With a phone's camera:")
        notes().print(qr_code(softphone.url), highlight=False, markup=False)
    certificate = softphone.certificate
    if certificate is not None and not certificate.own:
        note(
            "The browser warns once of the self-signed certificate: continue if its"
            f" SHA-256 fingerprint is {certificate.fingerprint}."
        )
    if open_it:  # a browser in the terminal returns only at its end
        threading.Thread(target=_browse, args=(softphone.url,), name="browser", daemon=True).start()


def _browse(url: str) -> None:
    if not webbrowser.open(url):
        note("No browser could be started here; open the address by hand.")


def qr_code(text: str) -> str:
    """Return a terminal QR code; raises MissingExtra."""
    with require_extra("webrtc"):
        import segno
    out = io.StringIO()
    segno.make(text, error="l").terminal(out, compact=True)
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class ModelOptions:
    llm: options.LlmUrl = None
    model: options.LlmModel = "default"
    system: options.LlmSystem = ""
    key_env: options.LlmKeyEnv = "MR_QWEN3TTS_LLM_KEY"

    def words(self) -> TextSource | None:
        """Return the agent's model; None without ``--llm``. Raises BadRequest."""
        if self.llm is None:
            return None
        chat = chat_of(self.llm, self.model, self.key_env)
        return TextSource(chat=chat, system=self.system, prompt="")


@dataclass(frozen=True, slots=True)
class LogOptions:
    latency_log: options.LatencyLogFile = None
    otel: options.Otel = None
    call_log: options.CallLog = None


@dataclass(frozen=True, slots=True)
class SipOptions:
    config: options.ConfigFile = None
    sip: Annotated[
        bool,
        typer.Option(
            "--sip",
            help=(
                "Let the page dial SIP addresses without --config: from this machine,"
                " without an account."
            ),
            rich_help_panel="Telephone",
        ),
    ] = False


def add_to(app: typer.Typer) -> None:
    app.command(
        epilog="Examples:\n\n  mr-qwen3tts softphone"
        "\n\n  mr-qwen3tts softphone --host 0.0.0.0 --port 8443"
        "\n\n  mr-qwen3tts softphone --server Qwen=ws://127.0.0.1:8765/v1/speech"
        " --server Other=ws://127.0.0.1:8766/v1/speech\n\n"
        "  mr-qwen3tts softphone --llm http://127.0.0.1:11434/v1 --model llama3.2 --stt whisper"
        " --greeting 'Good morning!'\n\n"
        "  mr-qwen3tts softphone --config configs/phone.yaml --latency-log page.jsonl"
    )(
        option_groups(
            page=PageOptions,
            model=ModelOptions,
            logs=LogOptions,
            dialling=SipOptions,
            speech_options=SpeechOptions,
            listening=ListenOptions,
        )(softphone)
    )


@dataclass(frozen=True, slots=True)
class SoftphoneRequest:
    page: PageOptions
    speech_options: SpeechOptions
    plan: CallPlan
    words: TextSource | None
    """The agent's model; None: no agent."""
    logs: LogOptions
    config: PhoneConfig | None
    sip: bool


def softphone(
    page: PageOptions,
    model: ModelOptions,
    logs: LogOptions,
    dialling: SipOptions,
    speech_options: SpeechOptions,
    listening: ListenOptions,
    *,
    max_seconds: options.MaxSeconds = None,
) -> None:
    """Serve a [bold]softphone[/bold]: a page that calls the voice from a browser.

    Typed text is spoken; with --llm and --stt an agent talks. Ctrl-C ends it.
    """
    if model.llm is not None and listening.stt is None:
        raise typer.BadParameter("--llm needs --stt, such as --stt whisper, to hear callers.")
    words = model.words()
    said = read_config(dialling.config)
    plan = CallPlan(
        max_seconds=max_seconds,
        listening=listening,
        hearing=said.hearing if said is not None else None,
    )
    check_agent(words or TextSource(), plan)
    for option, path in (("--latency-log", logs.latency_log), ("--call-log", logs.call_log)):
        check_writable(option, path)
    asked = SoftphoneRequest(page, speech_options, plan, words, logs, said, dialling.sip)
    with require_extra("webrtc"):
        settings_of(asked, {"": "ws://127.0.0.1:8765/v1/speech"}, speech_options)
    if said is not None or dialling.sip:
        telephone_of(asked).check()
    print_config_warnings(said)
    run(serve(asked))


async def serve(asked: SoftphoneRequest) -> None:
    with require_extra("webrtc"):
        from qwen3tts_phone.softphone.server import Softphone, raise_thread_priority
    async with AsyncExitStack() as stack, PreflightChecks(goes_on=True) as ready:
        plan = asked.plan
        if asked.words is not None:
            plan = await stack.enter_async_context(
                with_agent(asked.words, plan, ready, asked.speech_options.language)
            )
        servers = parsed_servers(asked.page.server)
        if not servers:
            known = asked.config.speech.server if asked.config is not None else None
            known = known or os.environ.get("MR_QWEN3TTS_SERVER", "").strip() or None
            servers = {"": await ready.run_step(stack.enter_async_context(speech_server(known)))}
        url = next(iter(servers.values()))
        speech_options = await ready.run_step(asked.speech_options.voiced_at(url))
        await ready.finish()
        phone = None
        if asked.config is not None or asked.sip:
            phone = await stack.enter_async_context(await telephone_at(asked, url, speech_options))
        raise_thread_priority()  # the packets of a call in the browser leave from here
        page = await stack.enter_async_context(
            Softphone(settings_of(asked, servers, speech_options), phone=phone, agent=plan.agent)
        )
        print_softphone(page, open_it=asked.page.open_it)
        await asyncio.Event().wait()


def settings_of(
    asked: SoftphoneRequest, servers: dict[str, str], speech_options: SpeechOptions
) -> SoftphoneSettings:
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.settings.records import RecordSettings
    from qwen3tts_phone.softphone.settings import EngineSettings, SoftphoneSettings
    from qwen3tts_phone.softphone.webrtc.settings import IceServer

    page, listening = asked.page, asked.plan.listening
    heard = listening.stt is not None or listening.listens
    base = asked.config.settings().records if asked.config is not None else None
    try:
        return SoftphoneSettings(
            host=page.host,
            port=page.port,
            engines=tuple(EngineSettings(url, name) for name, url in servers.items()),
            voice=speech_options.voice,
            language=speech_options.language,
            options=speech_options.options,
            token=page.token(),
            https=False if page.http else None,
            certificate=page.certificate,
            key=page.certificate_key,
            insecure=page.insecure,
            names=tuple(page.name or ()),
            public_url=page.public_url.rstrip("/"),
            trusted_proxies=tuple(page.trusted_proxy or ()),
            ice_servers=tuple(IceServer(*each) for each in page.ice_servers()),
            listen=asked.plan.listen_settings() if heard else ListenSettings(),
            max_calls=page.max_calls,
            max_call_s=asked.plan.max_seconds or 7200.0,
            recording=page.recording,
            recordings=page.recordings,
            records=RecordSettings(
                log=asked.logs.call_log or (base.log if base is not None else None),
                consent=page.consent.value,
            ),
            latency_log=asked.logs.latency_log,
            otel=asked.logs.otel
            or (asked.config.speech.otel if asked.config is not None else None),
        )
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error


def telephone_of(asked: SoftphoneRequest) -> Telephone:
    return Telephone(
        host=local_address() if asked.config is None else None,
        port=None if asked.config is not None else 0,
        user=None,
        password_env="",
        registrar=None,
        record=None,
        latency_log=asked.logs.latency_log,
        otel=asked.logs.otel,
        speech_options=asked.speech_options,
        config=asked.config,
        call_log=asked.logs.call_log,
        calling=True,
    )


async def telephone_at(asked: SoftphoneRequest, url: str, speech_options: SpeechOptions) -> Phone:
    """Return it unstarted, on the publicly reachable address."""
    with require_extra("phone"):
        from qwen3tts_phone.phone import Phone
    return Phone(telephone_of(asked).settings(url, speech_options))
