"""What one setting alone cannot tell: settings of the phone's file that do not go together."""

from __future__ import annotations

import difflib
import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.payload import payload_by_name
from qwen3tts_phone.config_accounts import transport_of
from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.sip.settings import Listener
from qwen3tts_phone.sip.tls import check_certificates
from qwen3tts_settings.entries import BadConfiguration, Entry

if TYPE_CHECKING:
    from qwen3tts_phone.config import PhoneConfig

CODECS = ("PCMU", "PCMA", "G722", "opus")
MAX_NAME_BYTES = 255
"""Of a file's name, on all usual file systems."""
ANY = ("0.0.0.0", "::")


def check_together(config: PhoneConfig, entry: Entry, places: list[str]) -> None:
    """Refuse what cannot work; ``entry`` and the accounts' ``places`` say where it stands.

    Raises:
        BadConfiguration: two things want one port, a codec is unknown or cannot be had, an account
            needs a transport that is not there, or a file cannot be written.
        BadCertificate: a certificate, its key or an authority's cannot be used.
    """
    _check_listeners(config, entry)
    _check_certificate(config, entry)
    _check_rtp_ports(config, entry)
    _check_media_host(config, entry)
    _check_codecs(config, entry, places)
    _check_transports(config, entry, places)
    _check_writable(config, entry)


def _check_listeners(config: PhoneConfig, entry: Entry) -> None:
    """No two of them may want one port of one address."""
    taken: list[tuple[Listener, str, int, str]] = []
    several = bool(config.listen.listeners)
    try:
        listening = config.listen.listening()
    except ValueError as error:
        where = entry.place("listen", str(error).partition("=")[0])
        raise BadConfiguration(
            f"listen: {error} ({where}).", remedy="Name an address of this machine, or 0.0.0.0."
        ) from error
    for number, listener in enumerate(listening):
        path: tuple[str | int, ...] = ("listen", "listeners", number) if several else ("listen",)
        where = entry.place(*path)
        for transport in listener.transports:
            port = listener.tls_port if transport == "tls" else listener.port
            kind = "udp" if transport == "udp" else "tcp"
            for other, named, at, there in taken:
                clash = at == port != 0 and _overlap(other.host, listener.host)
                if clash and kind == ("udp" if named == "udp" else "tcp"):
                    raise BadConfiguration(
                        f"listen: {named.upper()} at {other.host} ({there}) and"
                        f" {transport.upper()} at {listener.host} ({where}) both want port {port}.",
                        remedy="Give each a port of its own; TLS has 5061, the others 5060.",
                    )
            taken.append((listener, transport, port, where))


def _check_certificate(config: PhoneConfig, entry: Entry) -> None:
    if config.listen.tls is None:
        return
    try:
        check_certificates(config.listen.tls)
    except BadCertificate as error:
        where = entry.place("listen", "tls")
        raise BadCertificate(
            f"listen.tls: {error.message} ({where})", remedy=error.remedy
        ) from error


def _overlap(one: str, other: str) -> bool:
    same_family = (":" in one) == (":" in other)
    return one == other or (same_family and (one in ANY or other in ANY))


def _check_rtp_ports(config: PhoneConfig, entry: Entry) -> None:
    low, high = config.media.rtp_ports
    where = entry.place("media", "rtp_ports")
    if (low, high) == (0, 0):
        return
    # A call takes an even port and the next one (RFC 3550 section 11).
    if not 1 <= low < high <= 65535 or low + low % 2 + 1 > high:
        raise BadConfiguration(
            f"media.rtp_ports: [{low}, {high}] is no range of ports ({where}).",
            remedy="Write the lowest and the highest: [16384, 16783].",
        )
    for listener in config.listen.listening():
        if "udp" in listener.transports and low <= listener.port <= high:
            raise BadConfiguration(
                f"media.rtp_ports: [{low}, {high}] holds the SIP port {listener.port} ({where}).",
                remedy="Choose a range beside it: [16384, 16783].",
            )


def _check_media_host(config: PhoneConfig, entry: Entry) -> None:
    if config.media.host is None:
        return
    try:
        ipaddress.ip_address(config.media.host)
    except ValueError as error:
        raise BadConfiguration(
            f"media.host: {config.media.host!r} is not an IP address to bind"
            f" ({entry.place('media', 'host')}).",
            remedy="Name an address of this machine, or leave it out.",
        ) from error


def _check_codecs(config: PhoneConfig, entry: Entry, places: list[str]) -> None:
    if not config.media.codecs:
        raise BadConfiguration(
            f"media.codecs is empty ({entry.place('media', 'codecs')}).", remedy="Name PCMU."
        )
    if config.media.ptime_ms not in range(10, 70, 10):
        raise BadConfiguration(
            f"media.ptime_ms={config.media.ptime_ms} is not 10, 20, 30, 40, 50 or 60"
            f" ({entry.place('media', 'ptime_ms')}).",
            remedy="Take 20, unless somebody asks for something else.",
        )
    named = [
        (f"media.codecs[{i}]", name, entry.place("media", "codecs", i))
        for i, name in enumerate(config.media.codecs)
    ]
    named += [
        (f"the account {account.name!r}: codecs", name, place)
        for account, place in zip(config.accounts, places, strict=True)
        for name in account.codecs or ()
    ]
    for what, name, where in named:
        _check_codec(what, name, where, config.media.ptime_ms)


def _check_codec(what: str, name: str, where: str, ptime_ms: int) -> None:
    known = {each.lower(): each for each in CODECS}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
        hint = f"Did you mean {known[near[0]]}?" if near else f"Known are: {', '.join(CODECS)}."
        raise BadConfiguration(f"{what}: {name!r} is no codec of ours ({where}).", remedy=hint)
    try:
        payload_by_name(name).encoder(ptime_ms)
    except CodecError as error:
        raise BadConfiguration(
            f"{what}: {error} ({where}).", remedy="Take it out, or do as it says."
        ) from error


def _check_transports(config: PhoneConfig, entry: Entry, places: list[str]) -> None:
    for account, place in zip(config.accounts, places, strict=True):
        wanted = transport_of(account)
        if wanted and wanted not in config.listen.enabled:
            remedy = "Add it to listen.transports."
            if wanted == "tls":
                remedy = "Write `tls: {}` under `listen`, with a `ca` where theirs is their own."
            raise BadConfiguration(
                f"The account {account.name!r} ({place}) needs {wanted.upper()}, and listen"
                f" ({entry.place('listen', 'transports')}) has only"
                f" {', '.join(config.listen.enabled)}.",
                remedy=remedy,
            )


def _check_writable(config: PhoneConfig, entry: Entry) -> None:
    """Files and folders that calls are written to; a missing folder is made later, if it can be."""
    records = config.records
    for path, section, name in (
        (records.log, "records", "log"),
        (records.audio, "records", "audio"),
        (config.speech.latency_log, "speech", "latency_log"),
    ):
        if path is None:
            continue
        where = entry.place(section, name)
        folder = name == "audio"
        if os.path.exists(path) and os.path.isdir(path) != folder:
            raise BadConfiguration(
                f"{section}.{name}: {path} is {'no' if folder else 'a'} folder ({where}).",
                remedy=f"Name a {'folder' if folder else 'file'}.",
            )
        if not folder and _is_a_name(path) and not os.path.exists(path.absolute().parent):
            raise BadConfiguration(
                f"{section}.{name}: {path} cannot be written: the folder"
                f" {path.absolute().parent} is not there ({where}).",
                remedy=f"Make it: mkdir -p -m 700 {path.absolute().parent}",
            )
        if not (_can_be_made(path) if folder else _can_be_written(path)):
            raise BadConfiguration(
                f"{section}.{name}: {path} cannot be written ({where}).",
                remedy="Check the folder's owner and rights, or name another place.",
            )


def _can_be_written(file: Path) -> bool:
    whole = file.absolute()
    return _is_a_name(whole) and _may_write(whole if os.path.exists(whole) else whole.parent)


def _can_be_made(folder: Path) -> bool:
    whole = folder.absolute()
    # Unlike their kin in pathlib these take a name that no file can have for one that is not there.
    nearest = next(place for place in (whole, *whole.parents) if os.path.exists(place))
    return _is_a_name(whole) and os.path.isdir(nearest) and _may_write(nearest)


def _is_a_name(path: Path) -> bool:
    """Whether a file can be called so."""
    return "\0" not in str(path) and all(
        len(part.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES for part in path.parts
    )


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK)
