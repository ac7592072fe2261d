"""Checks of a phone, a speech server and weight files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3tts_cli.calls.phone import UNASKED, Telephone, read_config
from qwen3tts_cli.doctor import checks
from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.trial_call import Trial, try_call
from qwen3tts_cli.output.console import notes
from qwen3tts_cli.output.exits import needs
from qwen3tts_settings.key_files import readable_by_others
from qwen3tts_wire.errors import SpeechError

if TYPE_CHECKING:
    from qwen3tts_cli.doctor.command import Report
    from qwen3tts_phone.settings.sections import PhoneConfig
    from qwen3tts_server.settings import AccessSettings


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
    from qwen3tts_cli.doctor.command import speech_server

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


def server_checks(config: Path) -> Iterator[Check]:
    """Look at a speech server's settings and at the files that ``server.access`` names."""
    with needs("server"):
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


HEADER_MAX = 100_000_000
"""Bytes; the format's own bound."""
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BF16": 16, "F16": 16, "U16": 16}
BITS |= {"I16": 16, "F32": 32, "U32": 32, "I32": 32, "F64": 64, "U64": 64, "I64": 64}
"""Of a number of each type; others are taken as they are."""


def faults(folder: Path) -> Iterator[str]:
    """What is wrong with a model's files of weights and its codec's, each by its name."""
    for part in (folder, folder / "speech_tokenizer"):
        files = sorted(part.glob("*.safetensors"))
        for file in files:
            if fault := weight_file_fault(file):
                yield f"{file} {fault}"
        if not (part / "model.safetensors").is_file():
            yield from _missing_shards(part / "model.safetensors.index.json")


def weight_file_fault(file: Path) -> str:
    """What is wrong with one file; nothing where it is as long as its header says."""
    try:
        size = file.stat().st_size
        with file.open("rb") as data:
            length = int.from_bytes(data.read(8), "little")
            if size < 8 or length > size - 8:
                return f"is cut off: {size} bytes do not hold its header"
            if length > HEADER_MAX:
                return "is damaged: its header is too long"
            header = json.loads(data.read(length))
        ends = [_end(entry) for name, entry in header.items() if name != "__metadata__"]
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return "is damaged: its header cannot be read"
    expected = 8 + length + max(ends, default=0)
    if size < expected:
        return f"is cut off: {size} of {expected} bytes"
    return "" if size == expected else f"is damaged: {size} bytes instead of {expected}"


def _end(entry: dict[str, Any]) -> int:
    """Where a tensor's bytes end; ValueError if they are not as many as its shape needs."""
    start, end = map(int, entry["data_offsets"])
    bits = BITS.get(entry["dtype"])
    if not 0 <= start <= end:
        raise ValueError("a tensor ends before it starts")
    if bits is not None and (end - start) * 8 != math.prod(entry["shape"]) * bits:
        raise ValueError("a tensor's bytes do not fit its shape")
    return end


def _missing_shards(index: Path) -> Iterator[str]:
    try:
        shards = set(json.loads(index.read_bytes())["weight_map"].values())
    except FileNotFoundError:
        yield f"{index.with_name('model.safetensors')} is missing"
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield f"{index} cannot be read"
    else:
        for shard in sorted(map(str, shards)):
            if not (index.parent / shard).is_file():
                yield f"{index.parent / shard} is missing"
