from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from qwen3tts_phone import sip_statuses
from qwen3tts_phone.detection import events as listening_errors
from qwen3tts_phone.diagnosis import audio_failure, call_failure
from qwen3tts_phone.diagnosis import diagnose as diagnosis
from qwen3tts_phone.diagnosis.call_failure import finding_of
from qwen3tts_phone.diagnosis.diagnose import diagnose, headline
from qwen3tts_phone.diagnosis.findings import CODES
from qwen3tts_phone.errors import (
    BadCertificate,
    BadSdp,
    CalleeUnreachable,
    CallError,
    CallRefused,
    NoCommonCodec,
    RegistrationFailed,
    WhyUnreachable,
)
from qwen3tts_phone.facts import CallFacts, EndFacts, MediaFacts, RegistrationFacts, SourceChange
from qwen3tts_phone.media import control as media_errors
from qwen3tts_phone.sip_statuses import STATUSES
from qwen3tts_phone.softphone import gateway
from qwen3tts_wire.errors import ConnectionLost
from tests.phone.facts import call_facts, leg_stats, media_facts, unanswered


def codes(facts: CallFacts) -> list[str]:
    return [each.code for each in diagnose(facts)]


def media(**changes: Any) -> CallFacts:
    return call_facts(media=media_facts(**changes))


def test_nothing_is_said_of_a_call_that_went_well() -> None:
    assert diagnose(call_facts()) == []
    assert headline([]) == ""


# --- why there was no call


def test_a_wrong_password_is_told_with_the_realm_and_the_user() -> None:
    error = CallRefused(401, "Unauthorized", realm="asterisk", user="6001")
    found = diagnose(unanswered(by="remote", status=401, reason="Unauthorized", error=error))
    assert [each.code for each in found] == ["wrong_password"]
    assert "'asterisk'" in found[0].words
    assert "'6001'" in found[0].words
    assert "password" in found[0].remedy


def test_a_password_that_was_not_given_where_it_was_asked_for_says_why() -> None:
    error = CallRefused(407, "No", realm="casino", user="6001", withheld="the realm is another")
    found = diagnose(unanswered(by="remote", status=407, reason="No", error=error))
    assert [each.code for each in found] == ["password_withheld"]
    assert "the realm is another" in found[0].words
    failed = RegistrationFailed("No.", status=401, realm="a", user="b", withheld="only MD5")
    assert finding_of(failed).code == "password_withheld"


def test_a_password_that_nobody_gave_is_another_matter_than_a_wrong_one() -> None:
    error = CallRefused(407, "Proxy Authentication Required", realm="sip.example")
    found = diagnose(unanswered(by="remote", status=407, error=error))
    assert [each.code for each in found] == ["no_password"]
    assert "'sip.example'" in found[0].words


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "moved"),
        (402, "payment"),
        (403, "forbidden"),
        (404, "wrong_number"),
        (405, "not_supported"),
        (408, "timeout"),
        (415, "codec"),
        (480, "unavailable"),
        (481, "dialog_lost"),
        (483, "loop"),
        (486, "busy"),
        (488, "codec"),
        (499, "refused"),
        (500, "server_failed"),
        (503, "overloaded"),
        (580, "server_failed"),
        (600, "busy"),
        (603, "declined"),
        (606, "codec"),
        (699, "declined"),
    ],
)
def test_each_refusal_has_its_words_and_its_remedy(status: int, code: str) -> None:
    error = CallRefused(status, "Reason Given")
    found = diagnose(unanswered(by="remote", status=status, reason="Reason Given", error=error))
    assert [each.code for each in found] == [code]
    assert str(status) in found[0].words
    assert found[0].words.endswith((".", "PCMA."))


def test_a_refusal_of_the_codecs_names_what_both_sides_have() -> None:
    facts = unanswered(by="remote", status=488, error=CallRefused(488, "Not Acceptable Here"))
    facts.media = MediaFacts(our_codecs=("PCMU", "PCMA"), their_codecs=("G729",))
    words = diagnose(facts)[0].words
    assert "PCMU, PCMA" in words
    assert "G729: nothing in common" in words


def test_encryption_that_we_require_is_named_where_the_description_is_refused() -> None:
    facts = unanswered(by="remote", status=488, error=CallRefused(488, "Not Acceptable Here"))
    facts.media = MediaFacts(our_codecs=("PCMU",), srtp_setting="require")
    found = diagnose(facts)[0]
    assert (found.code, "SRTP" in found.words) == ("codec", True)
    assert "srtp" in found.remedy


def test_no_common_codec_is_told_of_a_call_that_we_refuse_ourselves() -> None:
    facts = unanswered(by="local", status=488, error=NoCommonCodec("No common codec: G729."))
    assert codes(facts) == ["codec"]


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("dns", "dns"),
        ("refused", "port_closed"),
        ("timeout", "no_reply"),
        ("no_answer", "no_answer"),
        ("no_ack", "no_ack"),
        ("session", "vanished"),
        ("tls", "tls"),
        ("", "no_reply"),
    ],
)
def test_each_silence_has_its_words_and_its_remedy(why: WhyUnreachable, code: str) -> None:
    found = finding_of(CalleeUnreachable("No answer from 192.0.2.9:5060.", why=why))
    assert found.code == code
    assert "192.0.2.9" in found.words
    assert found.remedy


def test_silence_points_at_the_firewall() -> None:
    error = CalleeUnreachable("No answer from 192.0.2.9:5060 over UDP within 32 s.", why="timeout")
    found = diagnose(unanswered(by="timeout", status=408, error=error))[0]
    assert found.code == "no_reply"
    assert "firewall" in found.remedy
    assert "TCP or TLS" in found.remedy


def test_an_answer_that_was_never_acknowledged_points_at_our_own_address() -> None:
    error = CalleeUnreachable("The caller never acknowledged.", why="no_ack")
    found = diagnose(call_facts(end=EndFacts(by="timeout", error=error)))
    assert found[0].code == "no_ack"
    assert "advertised_host" in found[0].remedy


def test_errors_of_other_parts_keep_their_words_and_remedy() -> None:
    certificate = finding_of(
        BadCertificate("The certificate of pbx.example expired.", remedy="Renew.")
    )
    assert (certificate.code, certificate.remedy) == ("certificate", "Renew.")
    assert finding_of(BadSdp("Line 3 is wrong.")).code == "bad_sdp"
    assert finding_of(CallError("Odd.")).code == "call_error"
    assert finding_of(ConnectionLost("The server is gone.")).code == "speech"


def test_hanging_up_before_the_answer_is_no_fault() -> None:
    assert diagnose(unanswered(by="local")) == []
    assert diagnose(unanswered(by="local", status=487, reason="Request Terminated")) == []


def test_a_caller_who_gives_up_is_told_as_such_and_not_as_a_fault() -> None:
    found = diagnose(unanswered(by="remote"))
    assert [(each.code, each.severe) for each in found] == [("cancelled", False)]


def test_a_registration_that_failed_is_told_with_its_server() -> None:
    facts = RegistrationFacts(state="failed", server="sip.example:5060", user="alice")
    found = diagnose(call_facts(registration=facts))
    assert [each.code for each in found] == ["registration_refused"]
    assert "alice" in found[0].words
    assert "sip.example:5060" in found[0].words


def test_a_registration_that_ran_out_comes_after_the_refusal_that_it_caused() -> None:
    facts = unanswered(by="remote", status=403, error=CallRefused(403, "Forbidden"))
    facts.registration = RegistrationFacts(state="expired", server="sip.example", user="alice")
    assert codes(facts) == ["forbidden", "registration_expired"]


def test_a_registration_that_ran_out_says_why_it_was_not_renewed() -> None:
    error = RegistrationFailed("The registrar pbx.example does not answer.", why="timeout")
    facts = RegistrationFacts(state="expired", server="pbx.example", user="alice", error=error)
    found = diagnose(call_facts(registration=facts))
    assert [each.code for each in found] == ["registration_expired"]
    assert "does not answer" in found[0].words


def test_a_registrar_that_does_not_take_the_password_is_told_with_realm_and_user() -> None:
    facts = RegistrationFacts(
        state="failed",
        server="sip.example",
        user="alice",
        realm="example",
        status=401,
        error=RegistrationFailed("The registrar answered 401 Unauthorized.", status=401),
    )
    found = diagnose(call_facts(registration=facts))
    assert found[0].code == "wrong_password"
    assert "'alice'" in found[0].words
    assert "'example'" in found[0].words


def test_a_registration_is_judged_by_its_error_also_without_a_call() -> None:
    refused = RegistrationFailed("No.", status=403)
    away = RegistrationFailed("The registrar does not answer.", why="timeout")
    assert finding_of(refused).code == "registration_refused"
    assert finding_of(away).code == "no_reply"
    assert finding_of(RegistrationFailed("Odd.")).code == "registration_refused"


def test_a_registration_under_way_is_not_severe() -> None:
    found = diagnose(call_facts(registration=RegistrationFacts(state="trying", user="bob")))
    assert [(each.code, each.severe) for each in found] == [("registering", False)]


# --- why there was no sound


def test_no_sound_at_all() -> None:
    facts = media(stats=leg_stats(received=0, sent=0), source=None)
    assert codes(facts) == ["no_rtp"]
    assert "rtp_ports" in diagnose(facts)[0].remedy


def test_one_way_sound_towards_us_names_our_port() -> None:
    found = diagnose(media(stats=leg_stats(received=0), source=None))
    assert [each.code for each in found] == ["one_way_in"]
    assert "20000" in found[0].words


def test_our_private_address_is_the_reason_where_the_peer_is_public() -> None:
    found = diagnose(
        media(stats=leg_stats(received=0), source=None, local=("192.168.1.20", 20_000))
    )
    assert [each.code for each in found] == ["private_address"]
    assert "192.168.1.20" in found[0].words
    assert "advertised_host" in found[0].remedy


def test_a_private_address_is_no_reason_among_neighbours() -> None:
    facts = media(
        stats=leg_stats(received=0),
        source=None,
        local=("192.168.1.20", 20_000),
        remote=("192.168.1.30", 30_000),
        peer_host="192.168.1.30",
    )
    assert codes(facts) == ["one_way_in"]


def test_a_loopback_address_is_a_reason_also_among_neighbours() -> None:
    facts = media(
        stats=leg_stats(received=0), source=None, local=("127.0.0.1", 2000), peer_host="10.0.0.9"
    )
    assert "loopback" in diagnose(facts)[0].words


def test_their_private_address_is_told_as_long_as_no_sound_of_theirs_shows_the_way() -> None:
    hidden: dict[str, Any] = {"remote": ("10.0.0.5", 30_000)}
    unseen = media(stats=leg_stats(received=0), source=None, **hidden)
    assert codes(unseen) == ["private_address", "one_way_in"]
    assert "cannot be reached" in diagnose(unseen)[0].words
    followed = media(source=("192.0.2.9", 41_000), **hidden)
    assert [(each.code, each.severe) for each in diagnose(followed)] == [("media_elsewhere", False)]


def test_another_private_address_among_neighbours_is_named_as_possible() -> None:
    facts = media(
        stats=leg_stats(received=0, send_errors=2900),
        source=None,
        remote=("10.255.255.1", 30_000),
        peer_host="127.0.0.1",
    )
    found = diagnose(facts)
    assert [each.code for each in found] == ["private_address", "one_way_in"]
    assert "10.255.255.1" in found[0].words
    assert "127.0.0.1" in found[0].words
    assert "may not be reached" in found[0].words
    heard = media(remote=("10.255.255.1", 30_000), peer_host="10.0.0.1", source=("10.0.0.1", 9))
    assert codes(heard) == ["media_elsewhere"]


def test_the_source_is_also_taken_from_the_counters() -> None:
    stats = leg_stats(remote_address=("192.0.2.77", 5))
    assert codes(media(source=None, stats=stats)) == ["media_elsewhere"]


def test_one_way_sound_from_us_is_seen_in_their_reports() -> None:
    found = diagnose(media(stats=leg_stats(remote_fraction_lost=0.97)))
    assert [each.code for each in found] == ["one_way_out"]
    assert "97%" in found[0].words


def test_reports_that_never_mention_us_are_a_hint_and_no_more() -> None:
    stats = leg_stats(round_trip_ms=None, remote_jitter_ms=0.0, remote_lost=0)
    assert [(f.code, f.severe) for f in diagnose(media(stats=stats))] == [
        ("unconfirmed_out", False)
    ]


def test_a_port_that_refuses_our_packets() -> None:
    found = diagnose(media(stats=leg_stats(send_errors=2900)))
    assert [each.code for each in found] == ["port_closed"]
    assert "192.0.2.9 port 30000" in found[0].words


def test_strangers_whose_packets_were_not_taken() -> None:
    stats = leg_stats(received=0, strangers=800)
    assert codes(media(stats=stats, source=None)) == ["media_from_stranger"]


def test_a_codec_that_was_not_agreed() -> None:
    stats = leg_stats(received=0, unknown_payload=900)
    found = diagnose(media(stats=stats, source=None))
    assert found[0].code == "wrong_codec_in"
    assert "PCMU" in found[0].remedy


def test_datagrams_that_are_no_rtp() -> None:
    assert codes(media(stats=leg_stats(received=0, malformed=900), source=None)) == ["not_rtp"]


def test_wrong_keys_are_told_by_the_packets_that_could_not_be_read() -> None:
    found = diagnose(
        media(stats=leg_stats(received=0, srtp_failed=900), source=None, srtp="AEAD_AES_128_GCM")
    )
    assert [(each.code, each.severe) for each in found] == [("srtp_key", True)]
    assert "AEAD_AES_128_GCM" in found[0].words
    few = diagnose(media(stats=leg_stats(srtp_failed=3)))
    assert few == []


def test_a_muted_microphone_is_told_from_a_dead_line() -> None:
    assert codes(media(loud_in_s=0.0)) == ["far_end_silent"]
    assert codes(media(loud_in_s=None)) == []


def test_sound_that_stops_in_mid_call() -> None:
    found = diagnose(media(silent_s=20.0))
    assert [each.code for each in found] == ["rtp_stopped"]
    assert "20 s" in found[0].words


def test_sound_that_went_on_from_a_host_that_was_not_taken() -> None:
    refused = SourceChange(150.0, "refused", ("203.0.113.9", 4000))
    stopped = leg_stats(last_received_at=120.0)
    (found,) = diagnose(media(silent_s=20.0, refused=refused, stats=stopped))
    assert found.code == "media_moved"
    assert "203.0.113.9" in found.words
    # A stranger who was refused while the far end spoke is the reason for nothing.
    assert diagnose(media(refused=refused, stats=leg_stats(last_received_at=163.9))) == []


def test_sending_that_was_paused_for_want_of_any_packet_from_the_described_host() -> None:
    facts = media(unconfirmed="192.0.2.77", stats=leg_stats(received=0), source=None)
    found = {each.code: each for each in diagnose(facts)}
    assert "192.0.2.77" in found["unconfirmed_host"].words


def test_hold_is_told_and_no_fault() -> None:
    theirs = diagnose(media(send=False))
    ours = diagnose(media(receive=False, stats=leg_stats(received=0), source=None))
    assert [(each.code, each.severe) for each in theirs] == [("held", False)]
    assert [(each.code, each.severe) for each in ours] == [("we_hold", False)]


def test_a_hold_of_the_old_kind_is_a_hold() -> None:
    facts = media(remote=("0.0.0.0", 30_000), stats=leg_stats(sent=0), source=None)
    assert [each.code for each in diagnose(facts) if each.code != "one_way_in"] == ["held"]


def test_an_answer_without_a_media_address() -> None:
    facts = media(remote=None, stats=leg_stats(sent=0))
    assert codes(facts) == ["no_media"]


def test_an_answer_without_an_agreement_about_sound() -> None:
    assert codes(media(codec="")) == ["no_media"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"lost": 300, "received": 2700}, "loss_in"),
        ({"jitter_ms": 80.0}, "jitter_in"),
        ({"remote_fraction_lost": 0.1}, "loss_out"),
        ({"round_trip_ms": 900.0}, "delay"),
        ({"skipped_slots": 100}, "machine_late"),
        ({"starvations": 2}, "starved"),
        ({"inbound_overrun": 7}, "not_listened"),
    ],
)
def test_what_made_it_sound_badly_is_told(changes: dict[str, Any], code: str) -> None:
    found = diagnose(media(stats=leg_stats(**changes)))
    assert [each.code for each in found] == [code]
    assert found[0].remedy


def test_a_short_call_tells_nothing_of_its_sound() -> None:
    facts = media(stats=leg_stats(received=0, sent=10), source=None)
    facts.ended_at = 104.4
    assert diagnose(facts) == []


def test_a_media_process_that_gave_up_is_told() -> None:
    assert "media_failed" in codes(media(failed="it ran out of file handles"))


def test_the_severe_ones_come_first() -> None:
    facts = media(stats=leg_stats(received=0, starvations=3), source=None)
    found = diagnose(facts)
    assert [each.severe for each in found] == [True, False]
    assert headline(found).startswith("We hear nothing")


def test_facts_of_nothing_at_all_are_no_error() -> None:
    assert diagnose(CallFacts()) == []


# --- the list of all


def test_every_code_that_is_used_is_in_the_list_and_the_other_way_round() -> None:
    used = {each.code for each in STATUSES.values()}
    used |= {code for code, _ in call_failure.UNREACHABLE.values()}
    used |= set(call_failure.CODE_OF_ERROR.values())
    for module in (audio_failure, call_failure, diagnosis, sip_statuses):
        assert module.__file__
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                column = {"Finding": 0, "StatusMeaning": 0, "Rule": 1}
                code = node.args[column.get(node.func.id, 0)]
                if node.func.id in column and isinstance(code, ast.Constant):
                    used.add(str(code.value))
    elsewhere = {media_errors.MediaLost, listening_errors.MissingDetector, gateway.NoSuchCall}
    assert elsewhere <= set(_all(CallError))
    ours = [each for each in _all(CallError) if each.__module__.startswith("qwen3tts_phone.")]
    of_errors = {each.code for each in ours}
    mapped = {
        *call_failure.CODE_OF_ERROR,
        "call_refused",
        "callee_unreachable",
        "no_common_codec",
    }
    used |= of_errors - mapped - {"registration_failed"}
    assert used == set(CODES)
    assert all(words.endswith(".") for words in CODES.values())


def _all(kind: type[CallError]) -> list[type[CallError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _all(child))]


def test_no_remedy_speaks_in_capitals_or_leaves_a_sentence_open() -> None:
    for status in range(300, 700):
        found = call_failure.status_finding(status, "Reason")
        assert found.words[0].isupper()
        assert found.words.endswith(".")
        assert not found.remedy or found.remedy.endswith(".")


def test_a_registrar_whose_certificate_is_not_trusted_is_told_with_the_remedy_of_that() -> None:
    cause = BadCertificate("The certificate is not trusted.", remedy="Give tls.ca.")
    error = RegistrationFailed("The registrar cannot be reached: it is not trusted.", why="tls")
    error.__cause__ = cause
    found = finding_of(error)
    assert found.code == "certificate"
    assert found.remedy == "Give tls.ca."


def test_a_description_that_cannot_be_used_has_a_remedy() -> None:
    found = finding_of(BadSdp("Line 1 is 'this is no sdp'; a description begins with v=0."))
    assert found.code == "bad_sdp"
    assert found.remedy


def test_a_call_that_was_taken_and_never_rang_is_not_said_to_have_rung() -> None:
    error = CalleeUnreachable("It rang without an answer.", why="no_answer")
    facts = unanswered(by="timeout", status=487, error=error)
    facts.ringing_at = None
    assert codes(facts) == ["timeout"]
    assert "never rang" in headline(diagnose(facts))
    facts.ringing_at = 101.0
    assert codes(facts) == ["no_answer"]


@pytest.mark.parametrize(
    "changes", [{"send": False, "receive": False}, {"remote": ("0.0.0.0", 30_000)}]
)
def test_who_is_held_from_the_start_is_told_that_alone(changes: dict[str, Any]) -> None:
    facts = media(stats=leg_stats(sent=0, received=0), source=None, **changes)
    assert codes(facts) == ["held"]
