"""Setup of a SIP call from the phone's settings."""

from __future__ import annotations

import ipaddress
import socket

from qwen3tts_phone.errors import BadSdp, MissingEncryption, NoCommonCodec
from qwen3tts_phone.facts import CallFacts, MediaFacts, RegistrationFacts
from qwen3tts_phone.media.srtp import available
from qwen3tts_phone.sdp.crypto import SUITES
from qwen3tts_phone.sdp.description import parse
from qwen3tts_phone.sdp.session import SdpOptions, SdpSession
from qwen3tts_phone.settings.phone import PhoneSettings
from qwen3tts_phone.settings.records import RecordSettings
from qwen3tts_phone.sip.core.account import Account
from qwen3tts_phone.sip.registration.line import Line
from qwen3tts_phone.sip.sip_call import SipCall


def new_session(
    settings: PhoneSettings,
    suites: tuple[str, ...],
    account: Account | None,
    host: str,
    port: int,
) -> SdpSession:
    return SdpSession(
        host,
        port,
        SdpOptions(
            codecs=(account.codecs if account is not None else None) or settings.codecs,
            ptime_ms=settings.ptime_ms,
            srtp=srtp_of(settings, suites, account),
            srtp_suites=suites or SUITES,
            comfort_noise=settings.comfort_noise,
        ),
    )


def suites_for(settings: PhoneSettings) -> tuple[str, ...]:
    """Return usable SRTP suites. Raises MissingEncryption where some are required."""
    known = available()
    wanted = [each.srtp or settings.srtp for each in settings.all_accounts]
    if not known and "require" in (settings.srtp, *wanted):
        raise MissingEncryption(
            "Encrypted calls are required (srtp), and the library for them is not there.",
            remedy="Install pylibsrtp (it comes with the extra 'phone').",
        )
    return tuple(suite for suite in SUITES if suite in known)


def new_facts(
    sip: SipCall,
    session: SdpSession,
    account: Account | None,
    settings: PhoneSettings,
    began: tuple[float, float],
) -> CallFacts:
    return CallFacts(
        call_id=sip.call_id,
        direction="in" if sip.direction == "in" else "out",
        local_uri=sip.local_uri,
        remote_uri=sip.remote_uri,
        dialled_uri=sip.dialled_uri,
        display_name=sip.display_name,
        account=account.name if account is not None else "",
        transport=sip.transport,
        keep_transcript=(settings.records or RecordSettings()).transcript,
        started_wall=began[0],
        started_at=began[1],
        media=MediaFacts(
            srtp_setting=(account.srtp if account is not None else None) or settings.srtp,
            our_codecs=session.codecs,
            local=(session.host, session.port),
        ),
    )


def ready_message(settings: PhoneSettings, uri: str) -> str:
    hosts = settings.sip_settings().hosts
    others = "" if not all(map(_is_loopback, hosts)) else " (this machine only; see host)"
    named = [each.name for each in settings.all_accounts if each.register]
    accounts = f", and as {', '.join(named)}" if named else ""
    return f"Ready: call {uri}{others}{accounts}. Ctrl-C ends it."


def srtp_of(settings: PhoneSettings, suites: tuple[str, ...], account: Account | None) -> str:
    wanted = (account.srtp if account is not None else None) or settings.srtp
    return wanted if suites else "off"


def media_host(offer: str | None, local: str, srtp: str) -> str:
    """Return our media address: ``local`` if the offer has its family.

    Else this machine's address towards the offered one, except on a loopback-bound phone.
    """
    if offer is None:
        return local
    try:
        description = parse(offer)
        media = description.media[description.audio_line(srtp, local)]
    except (BadSdp, NoCommonCodec):
        return local  # the answer says what is wrong
    if media.has_family(local) or not media.receives:
        return local
    ours = _towards(media.host, media.port)
    if ours is None or ipaddress.ip_address(ours).is_loopback != _is_loopback(local):
        return local
    return ours


def _towards(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((host, port))
            ours = str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return None
    return None if ipaddress.ip_address(ours).is_link_local else ours


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def registration_facts(line: Line | None, *, draining: bool = False) -> RegistrationFacts | None:
    if line is None or line.registration is None:
        return None
    registration, error = line.registration, line.registration.error
    if draining:
        # It was taken back on purpose: nothing is wrong with it.
        return RegistrationFacts(state="unregistered", server=registration.server)
    ran_out = registration.expires_at is not None  # it was granted, and is no longer
    return RegistrationFacts(
        state="registered"
        if registration.bound
        else ("expired" if ran_out else "failed" if error else "trying"),
        server=registration.server,
        user=line.account.auth_user or line.account.user,
        realm=getattr(error, "realm", ""),
        status=getattr(error, "status", None),
        error=error,
    )
