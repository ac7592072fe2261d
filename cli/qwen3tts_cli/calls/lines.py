"""Call sources of ``answer``: SIP, AudioSocket, carrier media streams."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.output.exits import require_extra
from qwen3tts_phone.streams.carriers import carrier_names

if TYPE_CHECKING:
    from qwen3tts_phone.phone import PhoneSettings
    from qwen3tts_phone.streams.settings import StreamSettings

SIP, TCP = "sip", "audiosocket"
SIP_PORT, TCP_PORT, WEB_PORT = 5060, 9019, 8080
"""Default ports: SIP, AudioSocket as in Asterisk's examples, and WebSocket behind a proxy."""
NAMES = (SIP, *carrier_names(aliases=False))
PANEL = "Lines"
DRAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class LineOptions:
    line: Annotated[
        list[str] | None,
        typer.Option(
            "--line",
            metavar="KIND[:PORT]",
            help=(
                f"Source of calls: {', '.join(NAMES)} (asterisk is its WebSocket channel). May be"
                " repeated; all but sip and audiosocket share one port. Default: sip. Set-up pages:"
                " docs/lines/."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    stream_token_env: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE",
            help=(
                "Environment variable with the token required from media streams; empty ="
                " none is required. Carriers' own keys: their pages in docs/lines/ name the"
                " variables."
            ),
            rich_help_panel=PANEL,
        ),
    ] = "MR_QWEN3TTS_STREAM_TOKEN"
    stream_allow: Annotated[
        list[str] | None,
        typer.Option(
            "--stream-allow",
            metavar="NETWORK",
            help=(
                "Accept media streams from this network only, such as 10.0.0.0/8; may be repeated."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    stream_insecure: Annotated[
        bool,
        typer.Option(
            "--stream-insecure",
            help=(
                "Accept carriers' streams without key or token: anyone who finds the"
                " address can talk at your cost."
            ),
            rich_help_panel=PANEL,
        ),
    ] = False
    certificate: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Certificate with its chain (PEM): WebSocket streams use TLS (wss://).",
            rich_help_panel=PANEL,
        ),
    ] = None
    certificate_key: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Its private key; default: in the same file.",
            rich_help_panel=PANEL,
        ),
    ] = None
    once: Annotated[
        bool,
        typer.Option("--once", help="End after one call; --stdin implies it."),
    ] = False
    drain_seconds: Annotated[
        float,
        typer.Option(
            min=0,
            help="After SIGTERM, time for active calls to end by themselves.",
            rich_help_panel="Call",
        ),
    ] = DRAIN_S

    def check(self) -> None:
        kinds = self.kinds
        streams = [kind for kind in kinds if kind != SIP]
        for given, option in (
            (self.certificate, "--certificate"),
            (self.stream_allow, "--stream-allow"),
            (self.stream_insecure, "--stream-insecure"),
        ):
            if given and not streams:
                raise typer.BadParameter(
                    f"{option} is for media streams: name one, such as --line twilio."
                )
        if self.certificate is not None and not set(streams) - {TCP}:
            raise typer.BadParameter(
                "--certificate: AudioSocket has no encryption; use --line asterisk, or a tunnel."
            )
        if self.certificate_key is not None and self.certificate is None:
            raise typer.BadParameter("--certificate-key needs --certificate.")
        self.ports(None)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind for kind, _ in _parsed(self.line or [SIP])))

    def ports(self, first: int | None) -> Ports:
        """Return the ports; ``first`` (--port) is for the first line.

        Raises:
            typer.BadParameter: two ports for one listener, or one for two.
        """
        found: dict[str, int] = {}
        for kind, port in _parsed(self.line or [SIP]):
            listener = kind if kind in (SIP, TCP) else "WebSocket"
            if port is not None and found.setdefault(listener, port) != port:
                raise typer.BadParameter(
                    f"--line {kind}:{port}: {listener} streams share one port, and"
                    f" {found[listener]} is named for them already."
                )
        order = [kind if kind in (SIP, TCP) else "WebSocket" for kind in self.kinds]
        if first is not None and found.setdefault(order[0], first) != first:
            raise typer.BadParameter(
                f"--port {first} and --line {self.kinds[0]}:{found[order[0]]} contradict each"
                " other."
            )
        ports = Ports(
            found.get(SIP),
            found.get(TCP, TCP_PORT) if TCP in order else None,
            found.get("WebSocket", WEB_PORT) if "WebSocket" in order else None,
        )
        taken = [port for port in (ports.sip, ports.tcp, ports.web) if port]
        if twice := [port for port in taken if taken.count(port) > 1]:
            raise typer.BadParameter(f"--line: two lines cannot share the port {twice[0]}.")
        return ports

    def stream_settings(self, phone: PhoneSettings, ports: Ports) -> StreamSettings | None:
        """Return media stream settings, shared ones from the phone; None: no stream line.

        Raises ``typer.BadParameter``, MissingExtra.
        """
        kinds = tuple(kind for kind in self.kinds if kind != SIP)
        if not kinds:
            return None
        with require_extra("phone"):
            from qwen3tts_phone.streams.settings import StreamSettings
        alone = kinds == (TCP,)
        try:
            return StreamSettings(
                kinds=kinds,
                host=phone.sip.hosts[0] if phone.sip is not None else phone.host,
                port=(ports.tcp if alone else ports.web) or 0,
                audiosocket_port=ports.tcp or 0,
                server_url=phone.server_url,
                voice=phone.voice,
                language=phone.language,
                options=phone.options,
                token=os.environ.get(self.stream_token_env, "").strip(),
                insecure=self.stream_insecure,
                allow=tuple(self.stream_allow or ()),
                certificate=self.certificate,
                key=self.certificate_key,
                max_calls=phone.sip.max_calls if phone.sip is not None else phone.max_calls,
                record_path=phone.record_path,
                latency_log=phone.latency_log,
                otel=phone.otel,
                records=phone.records,
                unavailable_file=phone.unavailable_file,
                freeze_heap=phone.freeze_heap,
            )
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from error


@dataclass(frozen=True, slots=True)
class Ports:
    """Listener ports; None: no such line, or set by the file."""

    sip: int | None = None
    tcp: int | None = None
    web: int | None = None


def _parsed(lines: Sequence[str]) -> list[tuple[str, int | None]]:
    found: list[tuple[str, int | None]] = []
    for line in lines:
        kind, colon, text = line.strip().lower().partition(":")
        if kind not in NAMES:
            near = get_close_matches(kind, NAMES, 1)
            hint = f"; do you mean {near[0]}?" if near else ""
            raise typer.BadParameter(
                f"--line: {line[:60]!r} is not one of {', '.join(NAMES)}{hint}"
            )
        if colon and not (text.isascii() and text.isdigit() and int(text) < 65536):
            raise typer.BadParameter(f"--line {line[:60]}: a port is a number from 0 to 65535.")
        found.append((kind, int(text) if colon else None))
    return found
