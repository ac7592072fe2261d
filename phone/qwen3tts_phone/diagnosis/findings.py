"""Findings of a call, and the rows of the diagnosis tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

EvidenceT = TypeVar("EvidenceT")


CODES: Final[dict[str, str]] = {
    "bad_sdp": "A description of the sound cannot be used.",
    "bad_sip": "A SIP message or address cannot be used.",
    "busy": "The line is busy.",
    "call_error": "The call failed otherwise.",
    "cancelled": "The call was given up before the answer.",
    "certificate": "A TLS certificate is missing, expired, not trusted, or for another name.",
    "codec": "No codec or encryption suits both sides (488, 415, 606).",
    "declined": "The call was declined or blocked (603, 607, 608).",
    "delay": "Speech is heard late: a long round trip.",
    "dialog_lost": "The other side forgot the call (481).",
    "dns": "The host's name has no address.",
    "encryption": "An encrypted body could not be read (493).",
    "far_end_silent": "The far end sends silence only: a muted microphone.",
    "forbidden": "The server forbids the call (403).",
    "glare": "Both sides changed the call simultaneously (491).",
    "held": "The far end has us on hold.",
    "jitter_in": "The far end's packets come unevenly.",
    "keys_ignored": "DTMF digits came faster than a person presses keys.",
    "leg_closed": "An operation on the media of a call that was over.",
    "loop": "The call went in circles (482, 483).",
    "loss_in": "Packets of the far end are lost.",
    "loss_out": "Our packets are lost, says the far end.",
    "machine_answered": "A machine answered, not a person.",
    "machine_late": "This machine is too busy for its calls.",
    "media_elsewhere": "Sound comes from another address than described.",
    "media_from_stranger": "Sound from an unannounced address was not accepted.",
    "media_failed": "Our media process gave up the call.",
    "media_lost": "Our media process ended.",
    "media_moved": "Sound stopped, and packets then came from another host and were not accepted.",
    "media_refused": "Our media process cannot do what was agreed.",
    "missing_detector": "The voice activity detector that was asked for is not installed.",
    "missing_encryption": "Encryption is required, and cannot be had here.",
    "moved": "The number has moved (3xx).",
    "no_ack": "Our answer was never acknowledged: our Contact cannot be reached.",
    "no_answer": "It rang, and was not answered.",
    "no_media": "Answered without an agreement about sound.",
    "no_password": "A password is asked for, and the call has none (401, 407).",
    "no_reply": "Nothing came back at all: firewall, wrong port or transport.",
    "no_rtp": "No sound went either way.",
    "no_such_call": "The call to be monitored is over, or of another process.",
    "no_stream_media": "A media stream was open, and no sound came by it.",
    "not_allowed": "A rule of this phone forbids the destination.",
    "not_listened": "Inbound frames were dropped here because the program did not read them.",
    "not_possible": "An operation that this kind of line does not support.",
    "not_recorded": "The call was to be recorded, and was not.",
    "not_rtp": "Packets that arrive are not RTP: another encryption or protocol.",
    "not_supported": "The other side lacks or requires an extension, or a message was too large.",
    "odd_messages": "The far end sent messages that its protocol does not define.",
    "one_way_in": "We hear nothing.",
    "one_way_out": "The far end hears nothing.",
    "overloaded": "The server has no room (503).",
    "password_withheld": "A challenge for the password got no answer (place, realm, kind).",
    "payment": "The account has no credit (402).",
    "port_busy": "A local port is taken.",
    "port_closed": "Nothing listens at that address and port.",
    "private_address": "A private address in a description cannot be reached from outside.",
    "refused": "The call was refused otherwise.",
    "registering": "The account is not registered yet.",
    "registration_expired": "The registration has run out.",
    "registration_refused": "The registrar refused the registration.",
    "rtp_stopped": "The far end's sound stopped in mid-call.",
    "server_failed": "A server has failed (5xx).",
    "speech": "The speech server, its engine, or the language model failed.",
    "srtp_key": "Sound cannot be decrypted.",
    "starved": "The speech server was too slow: underruns.",
    "stream_lost": "A media stream broke off without an end message.",
    "timeout": "The server got no answer from the phone: it never rang, or 408.",
    "tls": "No TLS connection came about.",
    "transfer_failed": "The call could not be handed on.",
    "unavailable": "The phone is not reachable now (480).",
    "unconfirmed_host": "Nothing came from the described host, so that sending was paused.",
    "unconfirmed_out": "The far end's reports do not mention our sound.",
    "vanished": "The far end or the network is gone.",
    "we_hold": "We have the far end on hold.",
    "wrong_codec_in": "Sound comes in a codec that was not agreed.",
    "wrong_number": "There is no such number (404, 410, 484, 604).",
    "wrong_password": "The password is not accepted (401, 407).",
    "wrong_state": "An operation that the state of the call did not allow.",
}
"""Every code of a finding; an error of another part brings its own."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault of a call, in words for operators."""

    code: str
    """Stable name, one of `CODES`."""
    words: str
    """The fault, in one or two sentences."""
    remedy: str
    """Remedy; empty = nothing can be done here."""
    severe: bool = True
    """True if it kept the call from being set up, or the parties from hearing each other."""

    def __str__(self) -> str:
        return f"{self.words} {self.remedy}".rstrip()


@dataclass(frozen=True, slots=True)
class Rule(Generic[EvidenceT]):
    """Row of a diagnosis table.

    Sentence and remedy are `str.format` templates over the evidence ``e``.
    """

    when: Callable[[EvidenceT], bool]
    code: str
    sentence: str
    remedy: str = ""
    severe: Callable[[EvidenceT], bool] | bool = True

    def finding(self, evidence: EvidenceT) -> Finding:
        severe = self.severe if isinstance(self.severe, bool) else self.severe(evidence)
        words = self.sentence.format(e=evidence)
        return Finding(self.code, words, self.remedy.format(e=evidence), severe)


Group = tuple[Rule[EvidenceT], ...]
"""Alternatives: the first rule that applies gives the finding."""


def findings_of(groups: Iterable[Group[EvidenceT]], evidence: EvidenceT) -> Iterator[Finding]:
    for group in groups:
        rule = next((each for each in group if each.when(evidence)), None)
        if rule is not None:
            yield rule.finding(evidence)
