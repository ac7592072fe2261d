"""What works as it is written, and is probably not meant so: remarks on the phone's file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3tts_phone.config_accounts import server_of, transport_of
from qwen3tts_phone.config_secrets import secret_files
from qwen3tts_phone.reach import Reach, reach
from qwen3tts_phone.sip.settings import SipSettings
from qwen3tts_phone.sip.tls import check_certificates
from qwen3tts_settings.entries import Entry
from qwen3tts_settings.own_files import readable_by_others

if TYPE_CHECKING:
    from qwen3tts_phone.config import PhoneConfig


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to look at."""

    words: str
    remedy: str
    where: str
    """File and line."""

    def __str__(self) -> str:
        return f"{self.words} ({self.where}). {self.remedy}".rstrip()


def review(config: PhoneConfig, entry: Entry) -> list[Remark]:
    """Remarks on a file that can be used; ``entry`` says where things stand in it."""
    return [
        *_secrets(entry),
        *_certificate(config, entry),
        *_addresses(config, entry),
        *_encryption(config, entry),
        *_ports(config, entry),
        *_keeping(config, entry),
    ]


def called_by(listen: SipSettings) -> tuple[str, ...]:
    """The names and addresses that others call us by, as far as the settings say."""
    hosts = (listen.advertised_host, *(each.advertised_host for each in listen.listening()))
    named = tuple(dict.fromkeys(host for host in hosts if host))
    if named:
        return named
    bound = (each.host for each in listen.listening() if "tls" in each.transports)
    return tuple(host for host in bound if (reach(host) or 0) > Reach.MACHINE)


def _secrets(entry: Entry) -> Iterator[Remark]:
    for path, where in secret_files(entry):
        if who := readable_by_others(path):
            yield Remark(f"The password's file {path} can be read by {who}", "chmod 600.", where)


def _certificate(config: PhoneConfig, entry: Entry) -> Iterator[Remark]:
    tls = config.listen.tls
    if tls is not None:
        for warning in check_certificates(tls, called_by(config.listen)):
            yield Remark(warning.rstrip("."), "", entry.place("listen", "tls"))


def _addresses(config: PhoneConfig, entry: Entry) -> Iterator[Remark]:
    """An address that servers outside cannot answer to."""
    listen = config.listen
    where = entry.place("listen", "host")
    outside = [each for each in config.accounts if _is_outside(server_of(each)[0])]
    hosts = [each.host for each in listen.listening()]
    if outside and all(reach(host) == Reach.MACHINE for host in hosts):
        yield Remark(
            f"SIP is bound to {', '.join(hosts)}, and {outside[0].name} is on another machine",
            "Name this machine's address in listen.host, or 0.0.0.0 for all.",
            where,
        )
        return
    natted = all((reach(host) or 0) in (Reach.PRIVATE, Reach.NOWHERE) for host in hosts)
    learnt = listen.nat == "learn" or all(each.nat == "learn" for each in outside)
    known = listen.advertised_host or any(each.advertised_host for each in listen.listeners)
    public = [each for each in outside if reach(server_of(each)[0]) in (None, Reach.PUBLIC)]
    if public and natted and not known and not learnt:
        yield Remark(
            f"{public[0].name} may be outside, and our own address is a private one",
            "Behind NAT set listen.nat: learn, or listen.advertised_host to the public address"
            " (docs/guides/nat.md).",
            where,
        )
    if (reach(listen.advertised_host) or Reach.PUBLIC) < Reach.LINK:
        yield Remark(
            f"listen.advertised_host is {listen.advertised_host}, which leads nowhere from outside",
            "Give the address that others reach us at.",
            entry.place("listen", "advertised_host"),
        )


def _is_outside(host: str) -> bool:
    """Whether a server is on another machine, as far as its address says."""
    return host != "localhost" and reach(host) != Reach.MACHINE


def _encryption(config: PhoneConfig, entry: Entry) -> Iterator[Remark]:
    # RFC 4568 section 7: who reads the signalling has the keys.
    required = config.media.srtp == "require"
    for account in config.accounts:
        wanted = account.srtp == "require" or (account.srtp is None and required)
        if wanted and transport_of(account) != "tls":
            yield Remark(
                f"The sound of {account.name} is encrypted, and its keys go over plain SIP",
                "Let it use TLS: sips:, or ;transport=tls.",
                entry.place("media", "srtp"),
            )


def _ports(config: PhoneConfig, entry: Entry) -> Iterator[Remark]:
    low, high = config.media.rtp_ports
    room = (high - low + 1) // 2
    if low and room < config.listen.max_calls:
        yield Remark(
            f"media.rtp_ports have room for {room} calls, and listen.max_calls is"
            f" {config.listen.max_calls}",
            "Make the range larger, two ports a call, or max_calls smaller.",
            entry.place("media", "rtp_ports"),
        )


def _keeping(config: PhoneConfig, entry: Entry) -> Iterator[Remark]:
    records = config.records
    if records.audio is not None and not records.audio_keep_days and not records.audio_max_bytes:
        yield Remark(
            "Recordings are kept for ever",
            "Set records.audio_keep_days or records.audio_max_bytes.",
            entry.place("records", "audio"),
        )
    if records.audio is not None and records.consent == "none":
        yield Remark(
            "Calls are recorded and nobody is told",
            "Where the law asks for it, set records.consent to tone or announcement.",
            entry.place("records", "audio"),
        )
    if config.safety.transfers == "accept" and not config.safety.guard.allowed:
        yield Remark(
            "Whoever calls may have us call any number in their place (safety.transfers: accept)",
            "Name the destinations in safety.guard.allowed.",
            entry.place("safety", "transfers"),
        )
