"""Phone of ``call`` and ``answer``: settings file, overridden by options."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qwen3tts_cli.options.common import (
    CallLog,
    Codecs,
    ConfigFile,
    Dtmf,
    Headers,
    LatencyLogFile,
    MaxSeconds,
    Otel,
    PasswordEnv,
    Record,
    Registrar,
    SipUser,
    Srtp,
    SrtpMode,
    Transfer,
    codec_names,
)
from qwen3tts_cli.options.speech import SpeechOptions
from qwen3tts_cli.output.console import note
from qwen3tts_cli.output.exits import MissingExtra, require_extra
from qwen3tts_cli.output.writable import check_sound_file, check_writable

if TYPE_CHECKING:
    from qwen3tts_phone.phone import PhoneSettings
    from qwen3tts_phone.settings.sections import PhoneConfig
    from qwen3tts_phone.sip.core.account import Account

REMOTE_HOST = "192.0.2.1"
"""Documentation address of another host (RFC 5737)."""
HERE = "127.0.0.1"
UNUSED_SERVER = "ws://127.0.0.1:8765/v1/speech"
"""Placeholder of an unused speech server."""
NAME = re.compile(r"[A-Za-z0-9+*#][A-Za-z0-9+*#._-]{0,63}", re.ASCII)
"""Number or user name without host."""
HEADER_FIELD = re.compile(r"([A-Za-z0-9.!%*_+`'~-]+)\s*:\s*(.*)", re.ASCII)
"""SIP header field (RFC 3261 section 25.1)."""


@dataclass(frozen=True, slots=True)
class TelephoneOptions:
    config: ConfigFile = None
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Local address of calls; default of outgoing calls: the one on the route.",
            rich_help_panel="Telephone",
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="Local port of SIP, or of the first line; 0 = any.",
            rich_help_panel="Telephone",
        ),
    ] = None
    user: SipUser = None
    password_env: PasswordEnv = "MR_QWEN3TTS_SIP_PASSWORD"
    registrar: Registrar = None
    codecs: Codecs = None
    srtp: SrtpMode = None
    header: Headers = None

    @property
    def has_account(self) -> bool:
        return self.config is not None or self.registrar is not None


@dataclass(frozen=True, slots=True)
class CallOptions:
    record: Record = None
    dtmf: Dtmf = None
    call_log: CallLog = None
    latency_log: LatencyLogFile = None
    otel: Otel = None
    max_seconds: MaxSeconds = None
    transfer: Transfer = None


@dataclass(frozen=True, slots=True)
class Telephone:
    """Phone settings of the command line; None: from the file."""

    host: str | None
    port: int | None
    user: str | None
    password_env: str
    registrar: str | None
    record: Path | None
    latency_log: Path | None
    speech_options: SpeechOptions
    config: PhoneConfig | None = None
    """The settings file."""
    account: str | None = None
    """Account for outgoing calls."""
    codecs: str | None = None
    """Comma-separated names in order of preference."""
    srtp: Srtp | None = None
    call_log: Path | None = None
    otel: str | None = None
    """Target of spans."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to our requests and answers."""
    calling: bool = False
    """Outgoing calls only."""
    secure: bool = False
    """Whether target or registrar requires TLS."""

    def check(self) -> None:
        """Refuse contradictory options or file; raises ``typer.BadParameter``."""
        if self.config is None:
            if self.account is not None:
                raise typer.BadParameter("--account needs --config FILE, which has the accounts.")
            if self.registrar is not None and self.user is None:
                raise typer.BadParameter("--registrar needs --user.")
        else:
            if self.registrar is not None or self.user is not None:
                raise typer.BadParameter(
                    "--registrar and --user conflict with --config: the file has the accounts."
                )
            names = [each.name for each in self.config.accounts]
            if self.account is not None and self.account not in names:
                raise typer.BadParameter(
                    f"--account: there is no {self.account!r} in the file; it has"
                    f" {', '.join(names) or 'none'}."
                )
        check_sound_file("--record", self.record, "phone")
        for option, path in (
            ("--latency-log", self.latency_log),
            ("--call-log", self.call_log),
        ):
            check_writable(option, path)
        self.settings(UNUSED_SERVER)

    def server_url(self, server: str | None) -> str | None:
        """Return the speech server URL of option or file, or an empty one."""
        if server is not None or self.config is None:
            return server
        return self.config.speech.server

    @property
    def language(self) -> str | None:
        """Return the language of option or file; None: unset."""
        if self.speech_options.language is not None or self.config is None:
            return self.speech_options.language
        return self.config.speech.language

    def settings(
        self,
        server_url: str,
        speech_options: SpeechOptions | None = None,
        *,
        max_calls: int | None = None,
    ) -> PhoneSettings:
        """Return phone settings; raises ``typer.BadParameter``, MissingExtra."""
        with require_extra("phone"):
            from qwen3tts_phone.phone import PhoneSettings
            from qwen3tts_phone.sip.core.settings import SipSettings, TlsSettings
        speech_options = speech_options or self.speech_options
        config = self.config
        base = PhoneSettings() if config is None else config.settings()
        listen = base.sip or SipSettings(
            host=self.host or HERE,
            user=self.user or "agent",
            max_calls=base.max_calls,
            tls=TlsSettings() if self.secure else None,
        )
        moved: dict[str, Any] = {}
        if self.calling and config is not None and not listen.listeners:
            # A phone with the same file may be answering; it keeps its ports.
            moved["port"] = 0
            moved["tls"] = replace(listen.tls, port=0) if listen.tls is not None else None
        if self.host is not None:
            moved["host"] = self.host
        if self.port is not None:
            moved["port"] = self.port
        if moved:
            moved["listeners"] = ()
        if max_calls is not None:
            moved["max_calls"] = max_calls
        try:
            sip = replace(listen, **moved)
            sip.listening()
            return replace(
                base,
                sip=sip,
                host=self.host or (HERE if config is None else base.host),
                accounts=self._own_account() if config is None else self._accounts(config),
                server_url=server_url,
                **self._changes(base, speech_options),
            )
        except ValueError as error:
            raise typer.BadParameter(f"{error}.") from error

    def _changes(self, base: PhoneSettings, speech_options: SpeechOptions) -> dict[str, Any]:
        from qwen3tts_phone.settings.records import RecordSettings

        changes: dict[str, Any] = {"options": {**base.options, **speech_options.options}}
        given = {
            "record_path": self.record,
            "latency_log": self.latency_log,
            "otel": self.otel,
            "voice": speech_options.voice,
            "language": speech_options.language,
            "srtp": self.srtp.value if self.srtp is not None else None,
            "codecs": parsed_codecs(self.codecs) if self.codecs is not None else None,
        }
        changes |= {name: value for name, value in given.items() if value is not None}
        if self.call_log is not None:
            changes["records"] = replace(base.records or RecordSettings(), log=self.call_log)
        return changes

    def _accounts(self, config: PhoneConfig) -> tuple[Account, ...]:
        if not self.calling:
            return config.accounts
        names = [each.name for each in config.accounts]
        mine = self.account or (names[0] if names else "")
        return tuple(
            each if each.name == mine else replace(each, register=False) for each in config.accounts
        )

    def _own_account(self) -> tuple[Account, ...]:
        from qwen3tts_phone.sip.core.account import Account

        if self.registrar is None:
            return ()
        assert self.user is not None
        password = os.environ.get(self.password_env, "")
        return (Account(registrar=self.registrar, user=self.user, password=password),)


def telephone_of(
    options: TelephoneOptions,
    run: CallOptions,
    speech_options: SpeechOptions,
    config: PhoneConfig | None,
    **changes: Any,
) -> Telephone:
    made = Telephone(
        host=options.host,
        port=options.port,
        user=options.user,
        password_env=options.password_env,
        registrar=options.registrar,
        record=run.record,
        latency_log=run.latency_log,
        speech_options=speech_options,
        config=config,
        codecs=options.codecs,
        srtp=options.srtp,
        call_log=run.call_log,
        otel=run.otel,
        headers=parsed_headers(options.header),
    )
    return replace(made, **changes)


def check_target(option: str, target: str | None, *, names: bool) -> None:
    """Refuse an invalid transfer target; ``names``: whether a bare number or name is valid.

    Raises ``typer.BadParameter``.
    """
    if target is None or (names and NAME.fullmatch(target.strip())):
        return
    with require_extra("phone"):
        from qwen3tts_phone.errors import BadSip
        from qwen3tts_phone.sip.message.fields import parse_uri
    try:
        parse_uri(target)
    except BadSip as error:
        raise typer.BadParameter(
            f"{option}: {error.message} Write it as sip:USER@HOST:PORT."
        ) from None


def read_config(path: Path | None) -> PhoneConfig | None:
    if path is None:
        return None
    with require_extra("phone"):
        from qwen3tts_phone.errors import BadCertificate
        from qwen3tts_phone.settings.file import read_phone_config
        from qwen3tts_settings.entries import BadConfiguration
    try:
        return read_phone_config(path)
    except BadCertificate as error:  # one of ours, named in the file
        raise BadConfiguration(error.message, remedy=error.remedy) from error


def print_config_warnings(config: PhoneConfig | None) -> None:
    for remark in config.remarks if config is not None else ():
        note(str(remark))


def parsed_codecs(text: str) -> tuple[str, ...]:
    from qwen3tts_codecs.errors import CodecMissing
    from qwen3tts_codecs.table import SDP_CODECS

    known = {spec.name.lower(): spec for spec in SDP_CODECS.values()}
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        if name.lower() not in known:
            raise typer.BadParameter(
                f"--codecs: {name!r} is not a supported codec; supported are"
                f" {', '.join(codec_names(''))}."
            )
    if not names:
        raise typer.BadParameter("--codecs is empty.")
    for name in names:
        try:
            known[name.lower()].payload.encoder(20)
        except CodecMissing as error:
            raise MissingExtra(
                f"--codecs: {error}.", remedy="Install it with: pip install 'mr_qwen3tts[phone]'"
            ) from None
    return tuple(known[name.lower()].name for name in names)


def parsed_headers(lines: list[str] | None) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines or ():
        match = HEADER_FIELD.fullmatch(line)
        if match is None:
            raise typer.BadParameter(f"--header: write it as NAME: VALUE, not {line[:60]!r}.")
        headers[match[1]] = match[2].strip()
    return headers


def requires_tls(*uris: str | None) -> bool:
    found = [uri.lower() for uri in uris if uri]
    return any(uri.startswith("sips:") or "transport=tls" in uri for uri in found)


def local_address(host: str = REMOTE_HOST) -> str:
    """Return the source address of packets to ``host``; sends nothing."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        # Dialling will say what is wrong with it.
        return HERE
