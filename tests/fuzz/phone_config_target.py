"""Fuzz target: the phone's file of settings."""

from __future__ import annotations

import contextlib

from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.settings.file import config_from
from qwen3tts_settings.entries import BadConfiguration, from_yaml
from tests.fuzz.target import Target

SECRET = "the-one-password-of-all"


def run_phone_config(data: bytes) -> None:
    """The bytes are a file; whatever it says is taken, or refused by a named error."""
    text = data.decode("utf-8", "replace")
    with contextlib.suppress(BadCertificate):
        refused: list[BadConfiguration] = []
        try:
            found = config_from(from_yaml(text, "f"), {"P": SECRET})
            assert SECRET not in f"{found!r} {found.settings()!r}"
        except BadConfiguration as error:
            refused.append(error)
        for each in refused:
            assert each.message
            assert each.remedy
            assert SECRET not in f"{each} {each.remedy}"


TARGETS = {
    "phone_config": Target(
        run_phone_config,
        "A phone's settings are read, or refused by a named error with a remedy and no password.",
        (
            b"listen: {host: 0.0.0.0, port: 5060, transports: [udp, tcp], tls: {}}\n",
            b"accounts:\n - {name: a, registrar: 'sips:h', user: '1', password_env: P}\n",
            b"trunks:\n - {name: b, server: 'sip:h', allowed_sources: [192.0.2.0/24]}\n",
            b"media: {codecs: [PCMU], srtp: off, rtp_ports: [20000, 20099]}\n",
            b"safety: {gate: {allow: []}, guard: {allowed: ['+49']}, transfers: ask}\n",
            b"outbound: {retry: {attempts: 2, waits_s: [60]}}\nrequire_registration: false\n",
        ),
        (b"accounts", b"trunks", b"listen", b"media", b"registrar", b"server", b": ", b"- ", b"!!"),
        # PyYAML takes a time in proportion to the square of how deep brackets are nested.
        most_bytes=1024,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "phone_config": (
        b"accounts: [{password: the-one-password-of-all}]",
        b"accounts: [{registrar: nowhere at all, user: a, password_env: P}]",
        b"accounts: [{registrar: 'sip:h', user: a, password_env: P, password_file: /x}]",
        b"accounts: [{registrar: 'sip:h', user: a, password_file: /nonexistent/x}]",
        b"accounts: [{registrar: 'sip:h', user: a, password_env: [P]}]",
        b"accounts: [{registrar: 'sip:h:99999', user: a}]",
        b"accounts: [{registrar: 'sip:[::1', user: a}]",
        b"accounts: [{registrar: 'tel:+1', user: a}]",
        b"accounts: [{registrar: 'sip:h;transport=carrier-pigeon', user: a}]",
        b"accounts: {a: b}\ntrunks: 5\n",
        b"trunks: [{server: 'sip:h', registrar: 'sip:h'}]",
        b"trunks: [{server: 'sip:h', register: true}]",
        b"trunks: [{server: 5}]",
        b"listen: {host: []}",
        b"listen: {host: nowhere.invalid}",
        b"listen: {host: ['::', '0.0.0.0']}",
        b"listen: {gate: {}}",
        b"listen: {tls: {certificate: /nonexistent}}",
        b"listen: {tls: {key_password_env: P}}",
        b"listen: {tls: {key_password: the-one-password-of-all}}",
        b"listen: {listeners: [{port: 5060}, {port: 5060}]}",
        b"listen: {dns: {nameservers: [x]}}",
        b"listen: {timers: {t1: .nan}}",
        b"media: {rtp_ports: [1, 99999999999999999999]}",
        b"media: {ptime_ms: -20}",
        b"media: {codecs: ['']}",
        b"media: {codecs: [opus, OPUS, PCMU, pcmu]}",
        b"records: {log: ''}",
        b'records: {log: "\\0"}',
        b"records: {audio: /dev/null/x}",
        b"speech: {latency_log: " + b"x" * 300 + b"}",
        b'listen: {tls: {ca: "\\0"}}',
        b"listen: {tls: {ca: /dev/zero}}",
        b"accounts: [{registrar: 'sip:h', user: a, password_file: /dev/zero}]",
        b"outbound: {retry: {causes: [answered]}}",
        b"outbound: {retry: {waits_by_cause: [[busy, 5]]}}",
        b"safety: {gate: {allow: [a]}}",
        b"safety: {guard: {country: x}}",
        b"\xff\xfe",
        b"a: &a {b: *a}",
        b"listen: !!python/name:os.system\n",
    ),
}
