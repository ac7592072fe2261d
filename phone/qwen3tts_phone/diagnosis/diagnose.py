"""Why there is no call or no sound, in plain words and with the remedy: one line in every record.

    for finding in diagnose(facts):
        print(finding)          # what is the matter, and what to do

All of it is pure; it judges by what is known and says "probably" where it infers.
"""

from __future__ import annotations

from typing import Final

from qwen3tts_phone.diagnosis.audio_failure import media_findings
from qwen3tts_phone.diagnosis.call_failure import call_findings, of_error, registration_findings
from qwen3tts_phone.diagnosis.stream_audio import stream_findings
from qwen3tts_phone.diagnosis.table import Finding
from qwen3tts_phone.diagnosis.web_audio import web_findings
from qwen3tts_phone.facts import CallFacts
from qwen3tts_wire.errors import SpeechError

__all__ = ["CODES", "Finding", "diagnose", "finding_of", "headline"]

CODES: Final[dict[str, str]] = {
    "bad_sdp": "A description of the sound cannot be used.",
    "bad_sip": "A SIP message or address cannot be used.",
    "busy": "The line is busy.",
    "call_error": "The call failed otherwise.",
    "cancelled": "It was given up before the answer.",
    "certificate": "A TLS certificate is missing, expired, not trusted, or for another name.",
    "codec": "No codec or encryption suits both sides (488, 415, 606).",
    "declined": "The call was declined or blocked (603, 607, 608).",
    "delay": "What is said is heard late.",
    "dialog_lost": "The other side forgot the call (481).",
    "dns": "The host's name has no address.",
    "encryption": "An encrypted body could not be read (493).",
    "far_end_silent": "The far end sends silence only: a muted microphone.",
    "forbidden": "The server forbids the call (403).",
    "glare": "Both sides changed the call at once (491).",
    "held": "The far end has us on hold.",
    "jitter_in": "The far end's packets come unevenly.",
    "keys_ignored": "Keys came faster than a person presses them.",
    "leg_closed": "Something was asked of the media of a call that was over.",
    "loop": "The call went in circles (482, 483).",
    "loss_in": "Packets of the far end are lost.",
    "loss_out": "Our packets are lost, says the far end.",
    "machine_answered": "A machine answered, not a person.",
    "machine_late": "This machine is too busy for its calls.",
    "media_elsewhere": "Sound comes from another address than described.",
    "media_from_stranger": "Sound from an unannounced address was not taken.",
    "media_failed": "Our media process gave the call up.",
    "media_lost": "Our media process ended.",
    "media_moved": "Sound stopped, and what then came from another host was not taken.",
    "media_refused": "Our media process cannot do what was agreed.",
    "missing_detector": "The voice activity detector that was asked for is not installed.",
    "missing_encryption": "Encryption is required, and cannot be had here.",
    "moved": "The number has moved (3xx).",
    "no_ack": "Our answer was never acknowledged: our Contact cannot be reached.",
    "no_answer": "It rang, and nobody answered.",
    "no_media": "Answered without an agreement about sound.",
    "no_password": "A password is asked for, and the call has none (401, 407).",
    "no_reply": "Nothing came back at all: firewall, wrong port or transport.",
    "no_rtp": "No sound went either way.",
    "no_such_call": "The call that was to be listened to is over, or of another process.",
    "no_stream_media": "A media stream was open, and no sound came by it.",
    "not_allowed": "A rule of this phone forbids the destination.",
    "not_listened": "Frames were dropped here because nobody took them.",
    "not_possible": "Something was asked of a line that it cannot do.",
    "not_recorded": "The call was to be recorded, and was not.",
    "not_rtp": "What comes is no RTP: another encryption or protocol.",
    "not_supported": "The other side lacks or requires an extension, or a message was too large.",
    "odd_messages": "The far end sent what its protocol does not have.",
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
    "registration_refused": "The registrar would not have us.",
    "rtp_stopped": "The far end's sound stopped in mid-call.",
    "server_failed": "A server has failed (5xx).",
    "speech": "What speaks has failed: the speech server, its engine, or the language model.",
    "srtp_key": "Sound cannot be decrypted.",
    "starved": "The speech server was too slow.",
    "stream_lost": "A media stream broke off without its end being told.",
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
    "wrong_state": "Something was asked of a call that it could not do then.",
}
"""Every code that a finding may have (an error of another part brings its own name)."""


def diagnose(facts: CallFacts) -> list[Finding]:
    """What was wrong with a call, the worst first; empty = all is well."""
    found = call_findings(facts)
    registration = registration_findings(facts.registration)
    # A registration that failed matters where no call came about, or none could come in.
    found += [each for each in registration if each.code not in {one.code for one in found}]
    of_line = {"sip": media_findings, "webrtc": web_findings}.get(facts.line, stream_findings)
    found += of_line(facts)
    if facts.keys_ignored:
        found.append(
            Finding(
                "keys_ignored",
                f"{facts.keys_ignored} keys came faster than a person presses them, and were not "
                "taken.",
                "It is a program that dials, or somebody who means harm: see who called.",
                severe=False,
            )
        )
    if facts.unrecorded:
        found.append(
            Finding(
                "not_recorded",
                f"The call was to be recorded, and was not: {facts.unrecorded}.",
                "A notice must be heard to its end; the log has more.",
                severe=False,
            )
        )
    return sorted(found, key=lambda each: not each.severe)


def finding_of(error: SpeechError) -> Finding:
    """What an error means where there is no call: a registration, an OPTIONS request, a name."""
    return of_error(error)


def headline(findings: list[Finding]) -> str:
    """One line for a record: the worst finding with its remedy; empty = all is well."""
    return str(findings[0]) if findings else ""
