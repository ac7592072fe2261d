"""What ``doctor`` looks at of a phone: its file of settings, its ports, a call that it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_cli import checks
from qwen3tts_cli.checks import Check, Level
from qwen3tts_cli.output import notes
from qwen3tts_cli.telephone import UNASKED, Telephone, read_config
from qwen3tts_cli.trial_call import Trial, try_call
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_cli.doctor_report import Report
    from qwen3tts_phone.settings.file import PhoneConfig


def examined_phone(
    report: Report, config: Path | None, made: Callable[[PhoneConfig | None], Telephone]
) -> Telephone | None:
    """The phone that a file of settings describes; None where it cannot be, which is reported."""
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
    telephone = made(file)
    telephone.check()
    return telephone


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
    """What the phone would bind and whom it would ask, without a call."""
    from qwen3tts_cli.doctor import speech_server

    settings = telephone.settings(UNASKED)
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


async def examine(report: Report, telephone: Telephone, trial: Trial) -> None:
    """Register where that is asked for, call where that is, and report each step."""
    with notes().status("Trying …"):
        async for check in try_call(telephone.settings(UNASKED), trial):
            report.add(check)
