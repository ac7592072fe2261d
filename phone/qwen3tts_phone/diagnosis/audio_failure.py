"""Why nobody is heard: what the packets say, in plain words (pure)."""

from __future__ import annotations

from qwen3tts_phone.diagnosis.audio_quality import machine_findings, quality_findings
from qwen3tts_phone.diagnosis.table import Finding
from qwen3tts_phone.facts import CallFacts, MediaFacts
from qwen3tts_phone.media.source import PAUSE_S
from qwen3tts_phone.media.types import LegStats
from qwen3tts_phone.sdp.addresses import AddressScope, address_scope, same_address

SHORT_S = 1.0
"""A call shorter than this tells nothing about its media."""
OPEN_PORTS = (
    "Let UDP through to the range of rtp_ports in firewalls and NATs on the way, and turn SIP ALG "
    "off in the router."
)
ADVERTISE = (
    "Set advertised_host to this machine's public address (or nat: learn), and forward the UDP "
    "range of rtp_ports to it."
)
FAR_ADDRESS = (
    "The other side must describe its public address (in a PBX: external or public media "
    "address), or send first so that we can answer to where its sound comes from."
)

_KINDS = {
    AddressScope.MACHINE: "the machine's own loopback address",
    AddressScope.LINK: "the link-local address",
    AddressScope.PRIVATE: "the private address",
}


def media_findings(facts: CallFacts) -> list[Finding]:
    """What was wrong with the sound of a call that was answered."""
    media, stats = facts.media, facts.media.stats
    if not facts.was_answered or stats is None:
        return []
    if not media.codec:
        return [
            Finding(
                "no_media",
                "The call was answered, and no sound was agreed on.",
                "The other side gave no usable description of its media; its log says more.",
            )
        ]
    found: list[Finding] = []
    if media.failed:
        found.append(
            Finding(
                "media_failed",
                f"The media process gave this call up: {media.failed[:200]}.",
                "The log has more; this is a fault of this program or of this machine.",
            )
        )
    if (_seconds(facts) or SHORT_S) >= SHORT_S:
        found += _directions(facts, media, stats)
    found += _encryption(media, stats)
    found += quality_findings(stats)
    found += machine_findings(stats)
    return found


def _seconds(facts: CallFacts) -> float | None:
    if facts.answered_at is None or facts.ended_at is None:
        return None
    return facts.ended_at - facts.answered_at


def _directions(facts: CallFacts, media: MediaFacts, stats: LegStats) -> list[Finding]:
    heard, sent = stats.received > 0, stats.sent > 0
    if not (heard or sent or _held_the_old_way(media)) and media.send and media.receive:
        return [_nothing_at_all(media)]
    found: list[Finding] = []
    if not heard:
        inward = _not_heard(media, stats)
        found += [] if inward is None else [inward]
    else:
        found += _heard(media, stats)
    outward = _not_sent(media) if not sent else _sent(media, stats)
    if outward is not None:
        # A private address is a cause; that nothing is heard is what follows from it.
        found.insert(0 if outward.code == "private_address" else len(found), outward)
    return found


def _held_the_old_way(media: MediaFacts) -> bool:
    """By an address that leads nowhere (RFC 3264 section 8.4)."""
    return media.remote is not None and address_scope(media.remote[0]) is AddressScope.NOWHERE


def _nothing_at_all(media: MediaFacts) -> Finding:
    hidden = _hidden(media.local, media) or _hidden(media.remote, media)
    if hidden is not None:
        return Finding(
            "no_rtp",
            f"No sound went either way; the address {hidden} cannot be reached from outside.",
            ADVERTISE if _hidden(media.local, media) else FAR_ADDRESS,
        )
    return Finding("no_rtp", "No sound went either way.", OPEN_PORTS)


def _not_heard(media: MediaFacts, stats: LegStats) -> Finding | None:
    """Why nothing of the far end was taken."""
    if _held_the_old_way(media):
        return None  # `_not_sent` says it
    if not media.receive:
        if not media.send:
            return None  # `_not_sent` says it: the other side stopped both ways
        words = "Nothing was to come: we had the other side on hold, or it said that it only hears."
        return Finding("we_hold", words, "", severe=False)
    if stats.srtp_failed:
        return None  # `_encryption` says it
    if stats.strangers:
        return Finding(
            "media_from_stranger",
            f"{stats.strangers} packets of sound came from an address that the other side did not "
            "announce, and were not taken.",
            "Let the other side describe the address that it sends from; if that is not to be had, "
            "allow symmetric RTP for it.",
        )
    if stats.unknown_payload:
        return Finding(
            "wrong_codec_in",
            f"The other side sends {stats.unknown_payload} packets in a codec that was not agreed.",
            f"It should send {media.codec}; restrict its codecs to that one.",
        )
    if stats.malformed:
        return Finding(
            "not_rtp",
            "What comes to our port is no RTP.",
            "The other side probably encrypts by DTLS or sends another protocol: turn WebRTC or "
            "DTLS off for this phone there, or use SRTP by SDES on both sides.",
        )
    hidden = _hidden(media.local, media)
    if hidden is not None:
        return Finding(
            "private_address",
            f"We hear nothing: our description names {hidden}, which the other side at "
            f"{media.peer_host} cannot reach.",
            ADVERTISE,
        )
    port = f" (UDP port {media.local[1]})" if media.local else ""
    return Finding(
        "one_way_in",
        f"We hear nothing: no sound of the other side reaches us{port}.",
        OPEN_PORTS,
    )


def _not_sent(media: MediaFacts) -> Finding | None:
    """Why we sent nothing."""
    if not media.send or _held_the_old_way(media):
        return Finding(
            "held",
            "The other side had put us on hold; it heard nothing of us.",
            "Somebody there must take the call back.",
            severe=False,
        )
    if media.remote is None or media.remote[1] == 0:
        return Finding(
            "no_media",
            "The other side described no address for sound.",
            "Its log says why; it may have refused the sound and kept the call.",
        )
    return Finding(
        "one_way_out",
        f"Nothing of ours was sent to {media.remote[0]}.",
        "Nothing was said on this call and silence is not sent, or the address has no route from "
        "here.",
    )


def _sent(media: MediaFacts, stats: LegStats) -> Finding | None:
    """Whether what we sent arrives, as far as that can be known."""
    if media.unconfirmed:
        return Finding(
            "unconfirmed_host",
            f"We stopped sending: nothing ever came from {media.unconfirmed}, which the other side "
            f"described for its sound, though its SIP comes from {media.peer_host}.",
            "Let its sound or its RTCP reports through to us; or, where this peer is known, name "
            "it in safety.gate.trusted.",
        )
    if stats.received == 0 and _source(media, stats) is None:
        private = _elsewhere_in_private(media)
        if private is not None:
            return private
    if stats.send_errors > stats.sent // 2:
        where = f"{media.remote[0]} port {media.remote[1]}" if media.remote else "its machine"
        return Finding(
            "port_closed",
            f"Our sound is refused {stats.send_errors} times: nothing listens at {where}, where "
            "the other side wants it.",
            "Check the media address and the ports that the other side describes.",
        )
    if not media.send:
        return Finding(
            "held",
            "The other side has us on hold: it hears nothing of us.",
            "Somebody there must take the call back.",
            severe=False,
        )
    if stats.remote_fraction_lost > 0.5:
        return Finding(
            "one_way_out",
            "The other side hears next to nothing of us: it reports "
            f"{stats.remote_fraction_lost:.0%} of our packets as lost.",
            OPEN_PORTS,
        )
    reported = stats.round_trip_ms is not None or stats.remote_jitter_ms or stats.remote_lost
    if stats.rtcp_in >= 2 and stats.rtcp_out >= 2 and not reported:
        return Finding(
            "unconfirmed_out",
            "The other side's reports do not mention our sound: it may hear nothing.",
            OPEN_PORTS,
            severe=False,
        )
    return None


def _source(media: MediaFacts, stats: LegStats) -> tuple[str, int] | None:
    """Where the far end's packets come from."""
    return media.source or stats.remote_address


def _heard(media: MediaFacts, stats: LegStats) -> list[Finding]:
    """What is odd about what came."""
    found: list[Finding] = []
    moved = _moved(media, stats)
    if moved is not None:
        found.append(moved)
    elif media.silent_s > 0 and media.receive:
        seconds = f"{media.silent_s:.0f} s"
        found.append(
            Finding(
                "rtp_stopped",
                f"The other side's sound stopped; nothing had come for {seconds}.",
                "It lost its network, or a NAT or firewall closed the way: let it send without "
                "pauses (no silence suppression), or keep the way open.",
            )
        )
    elif media.loud_in_s is not None and media.loud_in_s <= 0.0 and stats.received >= 50:
        found.append(
            Finding(
                "far_end_silent",
                "The other side sent packets all the time, with nothing in them but silence.",
                "Its microphone is off or muted, or sound does not reach the gateway behind it.",
            )
        )
    source = _source(media, stats)
    if source and media.remote and not same_address(source[0], media.remote[0]):
        found.append(
            Finding(
                "media_elsewhere",
                f"Sound came from {source[0]}, though the other side described "
                f"{media.remote[0]}: there is a NAT between, and it was followed.",
                "",
                severe=False,
            )
        )
    return found


def _moved(media: MediaFacts, stats: LegStats) -> Finding | None:
    """Refused sound is the reason why nothing was heard at the end."""
    refused, last = media.refused, stats.last_received_at
    if refused is None or last is None or refused.at - last < PAUSE_S:
        return None
    return Finding(
        "media_moved",
        f"The other side's sound stopped, and what then came from {refused.source[0]}, which it "
        "had not announced, was not taken.",
        "Let the other side announce its new address (a re-INVITE), or use SRTP, which proves who "
        "sends; else somebody tried to take the call over.",
    )


def _encryption(media: MediaFacts, stats: LegStats) -> list[Finding]:
    total = stats.received + stats.srtp_failed
    if not stats.srtp_failed or stats.srtp_failed < max(5, total // 100):
        return []
    return [
        Finding(
            "srtp_key",
            f"{stats.srtp_failed} packets of sound could not be decrypted"
            f"{f' ({media.srtp})' if media.srtp else ''}.",
            "The keys of both sides differ, or one side sends without encryption: set SRTP alike "
            "on both, and let no server between change the a=crypto lines.",
            severe=stats.received == 0,
        )
    ]


def _elsewhere_in_private(media: MediaFacts) -> Finding | None:
    """The far end describes a private address that is not the one it calls from."""
    if media.remote is None or not media.peer_host:
        return None
    described, peer = address_scope(media.remote[0]), address_scope(media.peer_host)
    if (
        described is None
        or peer is None
        or not AddressScope.NOWHERE < described < AddressScope.PUBLIC
    ):
        return None
    if same_address(media.remote[0], media.peer_host):
        return None
    kind = _KINDS[described]
    judged = "cannot be reached from here" if described < peer else "may not be reached from here"
    return Finding(
        "private_address",
        f"The other side probably hears nothing: it describes {kind} {media.remote[0]} for its "
        f"sound, which {judged}, though its SIP comes from {media.peer_host}.",
        FAR_ADDRESS,
    )


def _hidden(address: tuple[str, int] | None, media: MediaFacts) -> str | None:
    """The described address, where it reaches less far than the peer's own."""
    if address is None or not media.peer_host:
        return None
    described, peer = address_scope(address[0]), address_scope(media.peer_host)
    if described is None or peer is None or described is AddressScope.NOWHERE or described >= peer:
        return None
    return f"{_KINDS[described]} {address[0]}"
