"""Checks of a phone, a speech server and weight files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_cli.calls.phone import UNUSED_SERVER, Telephone, read_config
from qwen3tts_cli.doctor import checks
from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.trial_call import Trial, try_call
from qwen3tts_cli.doctor.weight_files import BITS
from qwen3tts_cli.output.console import notes
from qwen3tts_cli.output.exits import require_extra
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_cli.doctor.report import Report
    from qwen3tts_phone.detection.settings import ListenSettings
    from qwen3tts_phone.settings.sections import PhoneConfig
    from qwen3tts_server.settings import AccessSettings
from typing import TYPE_CHECKING

from qwen3tts_cli.doctor.report import Report
from qwen3tts_cli.output.exits import run

if TYPE_CHECKING:
    from qwen3tts_cli.doctor.checks import Check


def checked_phone(
    report: Report, config: Path | None, made: Callable[[PhoneConfig | None], Telephone]
) -> Telephone | None:
    """Return the phone of a settings file; None: invalid, reported."""
    try:
        file = read_config(config)
    except SpeechError as error:
        report.add(Check("settings", Level.FAIL, error.message, error.remedy))
        return None
    if file is not None:
        report.add(Check("settings", Level.OK, f"{config}: {_summary(file)}"))
        for remark in file.remarks:
            words = f"{remark.words} ({remark.where})"
            report.add(Check("settings", Level.WARN, words, remark.remedy))
        if file.hearing is not None and file.hearing.smart_turn:
            report.add(turn_detector_check(file.hearing))
    telephone = made(file)
    telephone.check()
    return telephone


def turn_detector_check(listen: ListenSettings) -> Check:
    """Check Smart Turn, by the file that the settings name."""
    name = "turn detector"
    try:
        with require_extra("phone"):
            from qwen3tts_phone.detection.smart_turn import turn_detector_of
        detector = turn_detector_of(listen)
        assert detector is not None
        answer_ms = 1000 * detector.check()
    except SpeechError as error:
        return Check(name, Level.FAIL, error.message, error.remedy)
    found = f"Smart Turn ({detector.path}), an answer takes {answer_ms:.0f} ms"
    return Check(name, Level.OK, found, "", {"answer_ms": round(answer_ms, 1)})


def _summary(file: PhoneConfig) -> str:
    registered = sum(each.register for each in file.accounts)
    trunks = len(file.accounts) - registered
    return (
        f"{_several(registered, 'account')}, {_several(trunks, 'trunk')},"
        f" codecs {', '.join(file.media.codecs)}, srtp {file.media.srtp}"
    )


def _several(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def phone_checks(telephone: Telephone, server: str | None) -> Iterator[Check]:
    pass

    settings = telephone.settings(UNUSED_SERVER)
    listen = settings.sip
    assert listen is not None
    for listener in listen.listening():
        if listener.port or set(listener.transports) & {"udp", "tcp"}:
            yield checks.sip_port(listener.host, listener.port)
        if "tls" in listener.transports:
            yield checks.tcp_port(listener.host, listener.tls_port, "TLS")
    leg = settings.leg_spec(listen.listening()[0].host)
    yield checks.rtp_ports(leg.local_host, leg.port_range)
    url = telephone.server_url(server)
    if url is not None:
        yield speech_server(url)


async def run_trial(report: Report, telephone: Telephone, trial: Trial) -> None:
    with notes().status("Trying …"):
        async for check in try_call(telephone.settings(UNUSED_SERVER), trial):
            report.add(check)


def server_checks(config: Path) -> Iterator[Check]:
    with require_extra("server"):
        from qwen3tts_server.configuration import load_configuration
    name = "server settings"
    try:
        settings = load_configuration(config)
    except SpeechError as error:
        yield Check(name, Level.FAIL, error.message, error.remedy)
        return
    except OSError as error:
        yield Check(name, Level.FAIL, f"{config}: {error.strerror or error}", "Check the path.")
        return
    yield Check(name, Level.OK, f"{config}: engine {settings.engine.name}, {settings.hash()}")
    access = settings.server.access
    if access.tls_cert is not None:
        yield _certificate(access)
    if access.api_key_file is not None:
        yield _keys(access.api_key_file)


def _certificate(access: AccessSettings) -> Check:
    from qwen3tts_server.tls import ServerTls, key_file

    name = "server certificate"
    try:
        ServerTls(access)
    except SpeechError as error:
        return Check(name, Level.FAIL, error.message, error.remedy)
    key = key_file(access)
    assert key is not None
    if who := readable_by_others(key):
        return Check(name, Level.WARN, f"{key} can be read by {who}", f"chmod 600 {key}")
    return Check(name, Level.OK, str(access.tls_cert))


def _keys(file: Path) -> Check:
    from qwen3tts_server.keys import ApiKeys

    name = "API keys"
    try:
        ApiKeys(file=file)
    except SpeechError as error:
        return Check(name, Level.FAIL, error.message, error.remedy)
    if who := readable_by_others(file):
        return Check(name, Level.WARN, f"{file} can be read by {who}", f"chmod 600 {file}")
    return Check(name, Level.OK, str(file))


BITS |= {"I16": 16, "F32": 32, "U32": 32, "I32": 32, "F64": 64, "U64": 64, "I64": 64}
"""Of a number of each type; others are taken as they are."""


def speech_server(url: str) -> Check:
    from qwen3tts_cli.doctor.checks import Check, Level
    from qwen3tts_wire.client import SpeechClient

    async def ask() -> str:
        client = await SpeechClient.connect(url)
        try:
            session = client.session
            return f"{session.engine}, {len(session.voices)} voices, {client.rtt_s * 1000:.1f} ms"
        finally:
            await client.close()

    try:
        return Check("speech server", Level.OK, run(ask()))
    except SpeechError as error:
        return Check("speech server", Level.FAIL, error.message, error.remedy)
