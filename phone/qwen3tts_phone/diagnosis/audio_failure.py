"""Diagnosis tables of audio over RTP, media streams and WebRTC."""

from __future__ import annotations

from typing import Final

from qwen3tts_phone.diagnosis.audio_evidence import ENOUGH_PACKETS, SHORT_S, AudioEvidence
from qwen3tts_phone.diagnosis.findings import Finding, Group, Rule, findings_of
from qwen3tts_phone.facts import CallFacts
from qwen3tts_phone.sdp.addresses import same_address

QUIET_S: Final = 5.0
"""Silence alone for this time is a muted microphone."""
LOSS: Final = 0.03
"""Share of lost packets that people notice (G.107: a point of MOS at about 10 %)."""
SEVERE_LOSS: Final = 0.15
JITTER_MS: Final = 40.0
"""Beyond this the jitter buffer waits noticeably."""
ROUND_TRIP_MS: Final = 400.0
"""ITU-T G.114: more than 200 ms one way is felt in a conversation."""

OPEN_PORTS: Final = (
    "Let UDP through to the range of rtp_ports in firewalls and NATs on the way, and turn SIP ALG "
    "off in the router."
)
ADVERTISE: Final = (
    "Set advertised_host to this machine's public address (or nat: learn), and forward the UDP "
    "range of rtp_ports to it."
)
FAR_ADDRESS: Final = (
    "The other side must describe its public address (in a PBX: external or public media "
    "address), or send first so that we can answer to where its sound comes from."
)
NOT_AGREED: Final[Rule[AudioEvidence]] = Rule(
    lambda e: not e.media.codec,
    "no_media",
    "The call was answered, and no sound was agreed on.",
    "The other side gave no usable description of its media; its log says more.",
)
MEDIA_FAILED: Final[Rule[AudioEvidence]] = Rule(
    lambda e: bool(e.media.failed),
    "media_failed",
    "The media process gave this call up: {e.media.failed:.200}.",
    "The log has more; this is a fault of this program or of this machine.",
)
RTP_DIRECTIONS: Final[tuple[Group[AudioEvidence], ...]] = (
    (
        Rule(
            lambda e: e.nothing_either_way and bool(e.hidden_local),
            "no_rtp",
            "No sound went either way; the address {e.hidden_local} cannot be reached from "
            "outside.",
            ADVERTISE,
        ),
        Rule(
            lambda e: e.nothing_either_way and bool(e.hidden_remote),
            "no_rtp",
            "No sound went either way; the address {e.hidden_remote} cannot be reached from "
            "outside.",
            FAR_ADDRESS,
        ),
        Rule(lambda e: e.nothing_either_way, "no_rtp", "No sound went either way.", OPEN_PORTS),
    ),
    (
        # Before the inbound findings: that nothing is heard follows from it.
        Rule(
            lambda e: bool(e.private_remote),
            "private_address",
            "The other side probably hears nothing: it describes {e.private_remote}, though its "
            "SIP comes from {e.media.peer_host}.",
            FAR_ADDRESS,
        ),
    ),
    (
        Rule(
            lambda e: not (e.heard or e.media.receive) and e.media.send and not e.held_by_address,
            "we_hold",
            "No sound was expected: we had the other side on hold, or it described itself as "
            "receiving only.",
            severe=False,
        ),
        Rule(
            lambda e: e.audio_expected and e.stats.strangers > 0,
            "media_from_stranger",
            "{e.stats.strangers} packets of sound came from an address that the other side did not "
            "announce, and were not accepted.",
            "Let the other side describe the address that it sends from; if that is not to be had, "
            "allow symmetric RTP for it.",
        ),
        Rule(
            lambda e: e.audio_expected and e.stats.unknown_payload > 0,
            "wrong_codec_in",
            "The other side sends {e.stats.unknown_payload} packets in a codec that was not "
            "agreed.",
            "It should send {e.media.codec}; restrict its codecs to that one.",
        ),
        Rule(
            lambda e: e.audio_expected and e.stats.malformed > 0,
            "not_rtp",
            "Packets that arrive at our port are not RTP.",
            "The other side probably encrypts by DTLS or sends another protocol: turn WebRTC or "
            "DTLS off for this phone there, or use SRTP by SDES on both sides.",
        ),
        Rule(
            lambda e: e.audio_expected and bool(e.hidden_local),
            "private_address",
            "We hear nothing: our description names {e.hidden_local}, which the other side at "
            "{e.media.peer_host} cannot reach.",
            ADVERTISE,
        ),
        Rule(
            lambda e: e.audio_expected,
            "one_way_in",
            "We hear nothing: no sound of the other side reaches us{e.port}.",
            OPEN_PORTS,
        ),
        Rule(
            lambda e: e.heard and e.moved_away,
            "media_moved",
            "The other side's sound stopped, and packets then came from {e.refused_host}, which it "
            "had not announced, and were not accepted.",
            "Let the other side announce its new address (a re-INVITE), or use SRTP, which proves "
            "who sends; else it was an attempt to take the call over.",
        ),
        Rule(
            lambda e: e.heard and e.media.silent_s > 0 and e.media.receive,
            "rtp_stopped",
            "The other side's sound stopped; nothing had come for {e.media.silent_s:.0f} s.",
            "It lost its network, or a NAT or firewall closed the way: let it send without pauses "
            "(no silence suppression), or keep the way open.",
        ),
        Rule(
            lambda e: e.only_silence_came and e.stats.received >= ENOUGH_PACKETS,
            "far_end_silent",
            "The other side sent packets all the time, with nothing in them but silence.",
            "Its microphone is off or muted, or sound does not reach the gateway behind it.",
        ),
    ),
    (
        Rule(
            lambda e: (
                e.heard
                and bool(e.source and e.media.remote)
                and not same_address(e.source_host, e.remote_host)
            ),
            "media_elsewhere",
            "Sound came from {e.source_host}, though the other side described {e.remote_host}: "
            "there is a NAT between, and it was followed.",
            severe=False,
        ),
    ),
    (
        Rule(
            lambda e: (
                not e.sent and not e.nothing_either_way and (not e.media.send or e.held_by_address)
            ),
            "held",
            "The other side had put us on hold; it heard nothing of us.",
            "Somebody there must take the call back.",
            severe=False,
        ),
        Rule(
            lambda e: (
                not e.sent
                and not e.nothing_either_way
                and (e.media.remote is None or e.media.remote[1] == 0)
            ),
            "no_media",
            "The other side described no address for sound.",
            "Its log says why; it may have refused the sound and kept the call.",
        ),
        Rule(
            lambda e: not e.sent and not e.nothing_either_way,
            "one_way_out",
            "Nothing of ours was sent to {e.remote_host}.",
            "Nothing was said on this call and silence is not sent, or the address has no route "
            "from here.",
        ),
        Rule(
            lambda e: e.sent and bool(e.media.unconfirmed),
            "unconfirmed_host",
            "We stopped sending: nothing ever came from {e.media.unconfirmed}, which the other "
            "side described for its sound, though its SIP comes from {e.media.peer_host}.",
            "Let its sound or its RTCP reports through to us; or, where this peer is known, name "
            "it in safety.gate.trusted.",
        ),
        Rule(
            lambda e: e.sends_to_remote and e.stats.send_errors > e.stats.sent // 2,
            "port_closed",
            "Our sound is refused {e.stats.send_errors} times: nothing listens at {e.remote_port}, "
            "where the other side wants it.",
            "Check the media address and the ports that the other side describes.",
        ),
        Rule(
            lambda e: e.sends_to_remote and not e.media.send,
            "held",
            "The other side has us on hold: it hears nothing of us.",
            "Somebody there must take the call back.",
            severe=False,
        ),
        Rule(
            lambda e: e.sends_to_remote and e.stats.remote_fraction_lost > 0.5,
            "one_way_out",
            "The other side hears next to nothing of us: it reports "
            "{e.stats.remote_fraction_lost:.0%} of our packets as lost.",
            OPEN_PORTS,
        ),
        Rule(
            lambda e: e.sends_to_remote and not e.reports_mention_us,
            "unconfirmed_out",
            "The other side's reports do not mention our sound: it may hear nothing.",
            OPEN_PORTS,
            severe=False,
        ),
    ),
)
SRTP: Final[Rule[AudioEvidence]] = Rule(
    lambda e: e.stats.srtp_failed >= max(5, (e.stats.received + e.stats.srtp_failed) // 100),
    "srtp_key",
    "{e.stats.srtp_failed} packets of sound could not be decrypted{e.suite}.",
    "The keys of both sides differ, or one side sends without encryption: set SRTP alike on both, "
    "and let no server between change the a=crypto lines.",
    severe=lambda e: not e.heard,
)
NETWORK: Final[tuple[Group[AudioEvidence], ...]] = (
    (
        Rule(
            lambda e: e.loss_in > LOSS,
            "loss_in",
            "{e.loss_in:.0%} of the other side's packets were lost or late.",
            "Look for a full line or a bad radio link on the way; give UDP of this machine "
            "priority.",
            severe=lambda e: e.loss_in > SEVERE_LOSS,
        ),
    ),
    (
        Rule(
            lambda e: e.stats.received >= ENOUGH_PACKETS and e.stats.jitter_ms > JITTER_MS,
            "jitter_in",
            "The other side's packets come unevenly ({e.stats.jitter_ms:.0f} ms of jitter).",
            "Look for a full line on the way, or for a busy machine there.",
            severe=False,
        ),
    ),
    (
        Rule(
            lambda e: LOSS < e.stats.remote_fraction_lost <= 0.5,
            "loss_out",
            "The other side reports {e.stats.remote_fraction_lost:.0%} of our packets as lost.",
            "Look for a full line or a bad radio link on the way to it.",
            severe=lambda e: e.stats.remote_fraction_lost > SEVERE_LOSS,
        ),
    ),
    (
        Rule(
            lambda e: (e.stats.round_trip_ms or 0.0) > ROUND_TRIP_MS,
            "delay",
            "Speech is heard late: {e.stats.round_trip_ms:.0f} ms there and back.",
            "Take a server that is nearer, or look for a full line on the way.",
            severe=False,
        ),
    ),
)


def _late(remedy: str) -> Group[AudioEvidence]:
    return (
        Rule(
            lambda e: e.stats.skipped_slots > max(5, e.stats.sent // 200),
            "machine_late",
            "This machine was too busy to send {e.stats.skipped_slots} packets in time.",
            remedy,
        ),
    )


RTP_LATE: Final = _late(
    "Give the media process real-time priority, or fewer calls to this machine."
)
PROCESS_LATE: Final = _late("Give this process fewer calls, or a core of its own.")
MACHINE: Final[tuple[Group[AudioEvidence], ...]] = (
    (
        Rule(
            lambda e: e.stats.starvations > 0,
            "starved",
            "The speech server was too slow: {e.stats.starvations} underruns left gaps in our "
            "speech.",
            "Check the load of the speech server, and the network to it.",
            severe=False,
        ),
    ),
    (
        Rule(
            lambda e: e.stats.inbound_overrun > 0,
            "not_listened",
            "{e.stats.inbound_overrun} frames of the other side were dropped here unheard.",
            "The program that listens is too slow.",
            severe=False,
        ),
    ),
)
STREAM: Final[Group[AudioEvidence]] = (
    Rule(
        lambda e: e.no_audio_came,
        "no_stream_media",
        "The stream was open, and no sound came by it.",
        "Let it carry the caller's sound both ways (a bidirectional stream, the inbound track), in "
        "the format that the set-up page of this line names.",
    ),
    Rule(
        lambda e: e.media.silent_s > 0 and e.media.receive,
        "rtp_stopped",
        "The other side's sound stopped; nothing had come for {e.media.silent_s:.0f} s, and the "
        "stream was open.",
        "The call behind the stream probably ended without a message: the PBX or the carrier "
        "should close the stream with it.",
    ),
    Rule(
        lambda e: e.only_silence_came and e.lasted_s >= QUIET_S,
        "far_end_silent",
        "The other side sent sound all the time, with nothing in it but silence.",
        "Its microphone is off or muted, or the stream carries another track than the caller's.",
        severe=False,
    ),
)
ODD_MESSAGES: Final[Group[AudioEvidence]] = (
    Rule(
        lambda e: bool(e.facts.odd),
        "odd_messages",
        "The other side sent messages that its protocol does not define: {e.odd_kinds}.",
        "If the call was not right, check that the stream is set up for the kind of line that it "
        "came to ({e.facts.line}), and look for a newer release of this program.",
        severe=False,
    ),
)
WEBRTC: Final[Group[AudioEvidence]] = (
    Rule(
        lambda e: e.no_audio_came and e.media.receive,
        "one_way_in",
        "The browser was connected, and no sound of its microphone came.",
        "Let the page use the microphone: the sign in the browser's address line says whether it "
        "may. In a phone's browser another program may have it.",
        severe=False,  # without a microphone a user may listen and type
    ),
    Rule(
        lambda e: e.media.silent_s > 0 and e.media.receive,
        "rtp_stopped",
        "The browser's sound stopped; nothing had come for {e.media.silent_s:.0f} s.",
        "Check the network of the device that the page is on. A phone whose screen goes dark may "
        "stop a page: keep it in front.",
    ),
    Rule(
        lambda e: e.only_silence_came and e.lasted_s >= QUIET_S and e.media.receive,
        "far_end_silent",
        "The browser sent sound all the time, with nothing in it but silence.",
        "The microphone is muted, in the page or at the device, or another one than the chosen one "
        "is spoken into.",
        severe=False,
    ),
)


def audio_findings(facts: CallFacts) -> list[Finding]:
    evidence = AudioEvidence(facts)
    if facts.line == "sip":
        return _rtp_findings(evidence)
    groups: list[Group[AudioEvidence]] = []
    web = facts.line == "webrtc"
    if facts.was_answered and evidence.lasted_s >= SHORT_S:
        groups.append(WEBRTC if web else STREAM)
        if facts.media.stats is not None:
            groups += [*NETWORK, PROCESS_LATE, *MACHINE]
    if not web:
        groups.append(ODD_MESSAGES)
    return list(findings_of(groups, evidence))


def _rtp_findings(evidence: AudioEvidence) -> list[Finding]:
    facts = evidence.facts
    if not facts.was_answered or facts.media.stats is None:
        return []
    if not facts.media.codec:
        return [NOT_AGREED.finding(evidence)]
    groups: list[Group[AudioEvidence]] = [(MEDIA_FAILED,)]
    if evidence.lasted_s >= SHORT_S:
        groups += RTP_DIRECTIONS
    groups += [(SRTP,), *NETWORK, RTP_LATE, *MACHINE]
    return list(findings_of(groups, evidence))
