"""Options of the ``softphone`` page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from qwen3tts_cli.output.writable import check_folder
from qwen3tts_cli.serving import is_loopback

PANEL = "Page"
PORT = 8780
TOKEN_ENV = "MR_QWEN3TTS_PAGE_TOKEN"
TURN_ENV = "MR_QWEN3TTS_TURN"


class Consent(StrEnum):
    NONE = "none"
    TONE = "tone"
    ANNOUNCEMENT = "announcement"


@dataclass(frozen=True, slots=True)
class PageOptions:
    host: Annotated[
        str,
        typer.Option(
            help=("Local address of the page; 0.0.0.0 for all. Beyond this machine it uses HTTPS."),
            rich_help_panel=PANEL,
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Its port; 0 = any.", rich_help_panel=PANEL)
    ] = PORT
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]URL",
            help=(
                "Speech server, ws://HOST:PORT/v1/speech; may be repeated, and the page"
                " chooses. Default: the best installed voice on this machine."
            ),
            rich_help_panel="Voice",
        ),
    ] = None
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST",
            help="Further host name of the page; may be repeated.",
            rich_help_panel=PANEL,
        ),
    ] = None
    public_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address of the page at a TLS proxy, such as https://phone.example.org.",
            rich_help_panel=PANEL,
        ),
    ] = ""
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help=(
                "Address or network of a proxy whose X-Forwarded headers are trusted; may"
                " be repeated."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    ice_server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help=(
                "STUN or TURN server, stun:HOST:PORT or turn:HOST:PORT, for pages and this"
                " side; may be repeated. Default: none."
            ),
            rich_help_panel=PANEL,
        ),
    ] = None
    turn_env: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE",
            help="Environment variable with USER:PASSWORD of the TURN servers.",
            rich_help_panel=PANEL,
        ),
    ] = TURN_ENV
    certificate: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Certificate with its chain (PEM). Default: a self-signed one, kept.",
            rich_help_panel=PANEL,
        ),
    ] = None
    certificate_key: Annotated[
        Path | None,
        typer.Option(
            "--certificate-key",
            "--key",
            exists=True,
            dir_okay=False,
            help="Its private key; default: in the same file.",
            rich_help_panel=PANEL,
        ),
    ] = None
    http: Annotated[
        bool,
        typer.Option(
            "--http",
            help=(
                "No TLS, also beyond this machine: only behind a TLS proxy, and with --insecure."
            ),
            rich_help_panel=PANEL,
        ),
    ] = False
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Allow --http beyond this machine.", rich_help_panel=PANEL),
    ] = False
    token_env: Annotated[
        str,
        typer.Option(
            metavar="VARIABLE",
            help=(
                "Environment variable with the access token; if empty, one is generated at"
                " each start."
            ),
            rich_help_panel=PANEL,
        ),
    ] = TOKEN_ENV
    max_calls: Annotated[
        int, typer.Option(min=1, max=1000, help="Concurrent calls.", rich_help_panel=PANEL)
    ] = 8
    recording: Annotated[
        bool,
        typer.Option(
            "--recording/--no-recording",
            help="Whether a page may record its calls.",
            rich_help_panel=PANEL,
        ),
    ] = True
    recordings: Annotated[
        Path | None,
        typer.Option(
            help="Folder of recordings; by default they are deleted at the end.",
            rich_help_panel=PANEL,
        ),
    ] = None
    consent: Annotated[
        Consent,
        typer.Option(
            help=(
                "Announcement before a recording: none, a beep, or 'This call is"
                " recorded.' and a beep."
            ),
            rich_help_panel=PANEL,
        ),
    ] = Consent.NONE
    open_it: Annotated[
        bool,
        typer.Option(
            "--open/--no-open",
            help="Open the page in this machine's browser.",
            rich_help_panel=PANEL,
        ),
    ] = False

    def check(self) -> None:
        if self.certificate_key is not None and self.certificate is None:
            raise typer.BadParameter("--certificate-key needs --certificate.")
        if self.http and self.certificate is not None:
            raise typer.BadParameter("give --http or --certificate, one of the two.")
        if self.http and not self.insecure and not is_loopback(self.host):
            raise typer.BadParameter(
                f"--http beyond this machine (--host {self.host}): browsers give no microphone to"
                " such a page, and others can listen. Leave --http out, or add --insecure"
                " behind a TLS proxy."
            )
        if self.recordings is not None and not self.recording:
            raise typer.BadParameter("give --recordings or --no-recording, one of the two.")
        if self.recordings is not None:
            check_folder("--recordings", self.recordings)
        parsed_servers(self.server)

    def token(self) -> str:
        """Token of the environment; empty: generate one."""
        return os.environ.get(self.token_env, "").strip()

    def ice_servers(self) -> list[tuple[str, str, str]]:
        """URL, user and password of ICE servers; STUN has neither."""
        user, _, password = os.environ.get(self.turn_env, "").strip().partition(":")
        return [
            (url, user, password) if url.startswith("turn") else (url, "", "")
            for url in self.ice_server or ()
        ]


def parsed_servers(given: list[str] | None) -> dict[str, str]:
    """Parse names and addresses; unnamed ones after the first are named by host.

    Raises ``typer.BadParameter``.
    """
    found: dict[str, str] = {}
    for each in given or ():
        name, _, url = (
            each.rpartition("=") if "://" not in each.partition("=")[0] else ("", "", each)
        )
        name, url = name.strip(), url.strip()
        if not url.startswith(("ws://", "wss://")):
            raise typer.BadParameter(
                f"--server: {url[:60]!r} is not an address such as ws://HOST:8765/v1/speech."
            )
        if not name and "" in found:
            name = f"Engine {len(found) + 1}"
        if name in found:
            raise typer.BadParameter(f"--server: the name {name[:40]!r} is given twice.")
        found[name] = url
    return found
