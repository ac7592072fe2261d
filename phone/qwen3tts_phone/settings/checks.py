"""Checks of combinations in a settings file."""

from __future__ import annotations

import difflib
import ipaddress
import os
from collections.abc import Iterator
from pathlib import Path

from qwen3tts_codecs.errors import CodecError
from qwen3tts_codecs.table import SDP_CODECS
from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.sdp.addresses import AddressScope, address_scope
from qwen3tts_phone.settings.accounts import server_of, transport_of
from qwen3tts_phone.settings.secrets import secret_files
from qwen3tts_phone.settings.sections import PhoneConfig, SettingsWarning
from qwen3tts_phone.sip.core.settings import Listener, SipSettings
from qwen3tts_phone.sip.transport.tls import check_certificates
from qwen3tts_settings.entries import BadConfiguration, Entry
from qwen3tts_settings.key_files import readable_by_others

MAX_NAME_BYTES = 255
"""Longest file name of all usual file systems."""
ANY = ("0.0.0.0", "::")


def check_combinations(config: PhoneConfig, entry: Entry, places: list[str]) -> None:
    """Refuse combinations that cannot work; ``entry``, ``places``: file and line.

    Raises:
        BadConfiguration: a port clash, an unknown or unavailable codec, a missing transport, or a
            file that cannot be written.
        BadCertificate: an invalid certificate, key or authority.
    """
    _check_listeners(config, entry)
    _check_certificate(config, entry)
    _check_rtp_ports(config, entry)
    _check_media_host(config, entry)
    _check_codecs(config, entry, places)
    _check_transports(config, entry, places)
    _check_writable(config, entry)


def _check_listeners(config: PhoneConfig, entry: Entry) -> None:
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
    known = {each.name.lower(): each.name for each in SDP_CODECS.values()}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
        hint = (
            f"Did you mean {known[near[0]]}?"
            if near
            else f"Known are: {', '.join(known.values())}."
        )
        raise BadConfiguration(f"{what}: {name!r} is no codec of ours ({where}).", remedy=hint)
    try:
        SDP_CODECS[name.upper()].payload.encoder(ptime_ms)
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
        if not folder and _is_file_name(path) and not os.path.exists(path.absolute().parent):
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
    return _is_file_name(whole) and _may_write(whole if os.path.exists(whole) else whole.parent)


def _can_be_made(folder: Path) -> bool:
    whole = folder.absolute()
    # Unlike their kin in pathlib these take a name that no file can have for one that is not there.
    nearest = next(place for place in (whole, *whole.parents) if os.path.exists(place))
    return _is_file_name(whole) and os.path.isdir(nearest) and _may_write(nearest)


def _is_file_name(path: Path) -> bool:
    return "\0" not in str(path) and all(
        len(part.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES for part in path.parts
    )


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK)


def settings_warnings(config: PhoneConfig, entry: Entry) -> list[SettingsWarning]:
    return [
        *_secrets(entry),
        *_certificate(config, entry),
        *_addresses(config, entry),
        *_encryption(config, entry),
        *_ports(config, entry),
        *_keeping(config, entry),
    ]


def advertised_names(listen: SipSettings) -> tuple[str, ...]:
    hosts = (listen.advertised_host, *(each.advertised_host for each in listen.listening()))
    named = tuple(dict.fromkeys(host for host in hosts if host))
    if named:
        return named
    bound = (each.host for each in listen.listening() if "tls" in each.transports)
    return tuple(host for host in bound if (address_scope(host) or 0) > AddressScope.MACHINE)


def _secrets(entry: Entry) -> Iterator[SettingsWarning]:
    for path, where in secret_files(entry):
        if who := readable_by_others(path):
            yield SettingsWarning(
                f"The password's file {path} can be read by {who}", "chmod 600.", where
            )


def _certificate(config: PhoneConfig, entry: Entry) -> Iterator[SettingsWarning]:
    tls = config.listen.tls
    if tls is not None:
        for warning in check_certificates(tls, advertised_names(config.listen)):
            yield SettingsWarning(warning.rstrip("."), "", entry.place("listen", "tls"))


def _addresses(config: PhoneConfig, entry: Entry) -> Iterator[SettingsWarning]:
    listen = config.listen
    where = entry.place("listen", "host")
    outside = [each for each in config.accounts if _is_outside(server_of(each)[0])]
    hosts = [each.host for each in listen.listening()]
    if outside and all(address_scope(host) == AddressScope.MACHINE for host in hosts):
        yield SettingsWarning(
            f"SIP is bound to {', '.join(hosts)}, and {outside[0].name} is on another machine",
            "Name this machine's address in listen.host, or 0.0.0.0 for all.",
            where,
        )
        return
    natted = all(
        (address_scope(host) or 0) in (AddressScope.PRIVATE, AddressScope.NOWHERE) for host in hosts
    )
    learnt = listen.nat == "learn" or all(each.nat == "learn" for each in outside)
    known = listen.advertised_host or any(each.advertised_host for each in listen.listeners)
    public = [
        each for each in outside if address_scope(server_of(each)[0]) in (None, AddressScope.PUBLIC)
    ]
    if public and natted and not known and not learnt:
        yield SettingsWarning(
            f"{public[0].name} may be outside, and our own address is a private one",
            "Behind NAT set listen.nat: learn, or listen.advertised_host to the public address"
            " (docs/guides/nat.md).",
            where,
        )
    if (address_scope(listen.advertised_host) or AddressScope.PUBLIC) < AddressScope.LINK:
        yield SettingsWarning(
            f"listen.advertised_host is {listen.advertised_host}, which leads nowhere from outside",
            "Give the address that others reach us at.",
            entry.place("listen", "advertised_host"),
        )


def _is_outside(host: str) -> bool:
    return host != "localhost" and address_scope(host) != AddressScope.MACHINE


def _encryption(config: PhoneConfig, entry: Entry) -> Iterator[SettingsWarning]:
    # RFC 4568 section 7: who reads the signalling has the keys.
    required = config.media.srtp == "require"
    for account in config.accounts:
        wanted = account.srtp == "require" or (account.srtp is None and required)
        if wanted and transport_of(account) != "tls":
            yield SettingsWarning(
                f"The sound of {account.name} is encrypted, and its keys go over plain SIP",
                "Let it use TLS: sips:, or ;transport=tls.",
                entry.place("media", "srtp"),
            )


def _ports(config: PhoneConfig, entry: Entry) -> Iterator[SettingsWarning]:
    low, high = config.media.rtp_ports
    room = (high - low + 1) // 2
    if low and room < config.listen.max_calls:
        yield SettingsWarning(
            f"media.rtp_ports have room for {room} calls, and listen.max_calls is"
            f" {config.listen.max_calls}",
            "Make the range larger, two ports a call, or max_calls smaller.",
            entry.place("media", "rtp_ports"),
        )


def _keeping(config: PhoneConfig, entry: Entry) -> Iterator[SettingsWarning]:
    records = config.records
    if records.audio is not None and not records.audio_keep_days and not records.audio_max_bytes:
        yield SettingsWarning(
            "Recordings are kept for ever",
            "Set records.audio_keep_days or records.audio_max_bytes.",
            entry.place("records", "audio"),
        )
    if records.audio is not None and records.consent == "none":
        yield SettingsWarning(
            "Calls are recorded without a notice",
            "Where the law asks for it, set records.consent to tone or announcement.",
            entry.place("records", "audio"),
        )
    if config.safety.transfers == "accept" and not config.safety.guard.allowed:
        yield SettingsWarning(
            "Any caller may have us call any number in its place (safety.transfers: accept)",
            "Name the destinations in safety.guard.allowed.",
            entry.place("safety", "transfers"),
        )
