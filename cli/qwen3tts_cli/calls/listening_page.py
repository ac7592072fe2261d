"""Softphone page beside ``call`` and ``answer``, to listen in and talk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from qwen3tts_cli.options.page import TOKEN_ENV
from qwen3tts_cli.output.exits import require_extra

if TYPE_CHECKING:
    from qwen3tts_agent.agent import Agent
    from qwen3tts_phone.phone import Phone, PhoneSettings
    from qwen3tts_phone.softphone.gateway import CallSource
    from qwen3tts_phone.softphone.settings import SoftphoneSettings

HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ListeningPageOptions:
    softphone: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help=(
                "Serve the softphone's page there, too: listen in to the calls, talk in"
                f" them, and dial. Its token: ${TOKEN_ENV}, else generated. Beyond this machine it"
                " uses HTTPS."
            ),
            rich_help_panel="Page",
        ),
    ] = None

    def check(self) -> None:
        _ = self.where
        if self.softphone is not None:
            with require_extra("webrtc"):
                import aiortc  # type: ignore[import-untyped, unused-ignore]  # noqa: F401

    @property
    def where(self) -> tuple[str, int] | None:
        """Return address and port; None: no page. Raises ``typer.BadParameter``."""
        if self.softphone is None:
            return None
        host, colon, port = self.softphone.strip().rpartition(":")
        host = host.strip("[]")
        known = port.isascii() and port.isdigit() and int(port) < 65536
        if not known or (colon and not host):
            raise typer.BadParameter(
                f"--softphone: {self.softphone[:60]!r} is not [HOST:]PORT, such as 8780 or"
                " 0.0.0.0:8780."
            )
        return host or HERE, int(port)


async def open_listening_page(
    stack: AsyncExitStack,
    options: ListeningPageOptions,
    settings: PhoneSettings,
    *,
    phone: Phone | None,
    further: Sequence[CallSource] = (),
    agent: Agent | None = None,
) -> None:
    """Serve the page, if requested, while ``stack`` is open."""
    if options.where is None:
        return
    with require_extra("webrtc"):
        from qwen3tts_phone.softphone.server import Softphone
    from qwen3tts_cli.softphone import print_softphone

    page = await stack.enter_async_context(
        Softphone(page_settings(options.where, settings), phone=phone, further=further, agent=agent)
    )
    print_softphone(page)


def page_settings(where: tuple[str, int], phone: PhoneSettings) -> SoftphoneSettings:
    """Return page settings, shared ones from the phone; raises ``typer.BadParameter``."""
    from qwen3tts_phone.settings.records import RecordSettings
    from qwen3tts_phone.softphone.settings import SERVER, EngineSettings, SoftphoneSettings

    kept = phone.records or RecordSettings()
    host, port = where
    try:
        return SoftphoneSettings(
            host=host,
            port=port,
            engines=(EngineSettings(phone.server_url or SERVER),),
            voice=phone.voice,
            language=phone.language,
            options=phone.options,
            token=os.environ.get(TOKEN_ENV, "").strip(),
            records=RecordSettings(log=kept.log, consent=kept.consent),
            latency_log=phone.latency_log,
            otel=phone.otel,
            freeze_heap=phone.freeze_heap,
        )
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from error
