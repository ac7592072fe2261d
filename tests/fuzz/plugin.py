"""Partial commands of a language model, plain text, plugin settings, destinations."""

from __future__ import annotations

import contextlib
import json
import re
from urllib.parse import unquote

from mr_qwen3tts.calls.rules import Refused, check, destination, keys_of
from mr_qwen3tts.partials import Growth, words_of
from mr_qwen3tts.settings import Settings, SettingsError
from mr_qwen3tts.variables import PREFIX, SHOWN_CHARS
from qwen3tts_phone.dialling.numbers import EMERGENCY_EVERYWHERE
from qwen3tts_text.plain_text import PlainText
from tests.fuzz.target import Target, sequence, steps

CLOSERS = ("", "]", '"}]', "\ud83d")
"""Endings that the host may show behind a text that is not complete."""


def _text(data: bytes) -> str:
    """Any text that JSON can carry: half emojis, too."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def _speakable(words: str) -> str:
    words.encode("utf-8")
    return words


def run_partials(data: bytes) -> None:
    growth, said = Growth(), ""
    for kind, rest in steps(data):
        shown: object = _text(rest)
        if kind == "j":
            with contextlib.suppress(ValueError, RecursionError):
                shown = json.loads(rest)
        # "n": the command was never run; the model is asked again. "b": the turn broke off.
        words = growth.shown if kind == "b" else words_of(shown)
        said += _speakable(growth.finish(words) if kind in "fb" else growth.update(words))
        assert growth.given == said
        if kind == "f":
            growth, said = Growth(before=words), ""
        elif kind in "nb":
            growth, said = Growth(said=growth.given), ""


def run_growing_text(data: bytes) -> None:
    closer, width = CLOSERS[data[0] % len(CLOSERS)] if data else "", data[1] % 7 if data[1:] else 0
    text = _text(data[2:])
    growth = Growth()
    for end in range(0, len(text), 1 + width):
        growth.update(text[:end] + closer)
        assert len(growth.given) <= end
    growth.finish(text)
    again = Growth()
    again.finish(text)
    if not closer:
        assert growth.given == again.given


def run_plain_text(data: bytes) -> None:
    width, text = 1 + (data[0] % 11 if data else 0), _text(data[1:])
    whole, cut = PlainText(), PlainText()
    whole_text = whole.push(text) + whole.finish()
    pieces = [cut.push(text[start : start + width]) for start in range(0, len(text), width)]
    assert "".join(pieces) + cut.finish() == whole_text
    assert len(whole_text) <= 2 * len(text) + 8


def run_settings(data: bytes) -> None:
    env: dict[str, object] = {}
    for line in _text(data).splitlines():
        name, _, value = line.partition("=")
        env[PREFIX + name] = value
    usable, problems = Settings.usable(env)
    hash(usable)
    assert all(len(str(problem)) < 400 + SHOWN_CHARS for problem in problems)
    with contextlib.suppress(SettingsError):
        assert Settings.read(env) == usable
        assert not problems


def run_destination(data: bytes) -> None:
    server, _, written = _text(data).partition("\n")
    with contextlib.suppress(Refused):
        keys_of(written)
    with contextlib.suppress(Refused):
        there = destination(written, server or None)
        assert there.uri.isprintable()
        assert " " not in there.uri
        check(there, ())
        user = unquote(there.uri.partition(":")[2].rpartition("@")[0])
        if re.fullmatch(r"[+]?[-. /()0-9]*", user):
            assert re.sub(r"[^0-9]", "", user) not in EMERGENCY_EVERYWHERE


TARGETS = {
    "partials": Target(
        run_partials,
        "Whatever part of a command the host shows, the text sent is valid, and sent once.",
        (
            sequence("uGood", "uGood mor", "uGood morning, all]", "fGood morning, all."),
            sequence("uHi \ud83d".encode("utf-8", "surrogatepass"), "fHi 😀 there."),
            sequence('j{"text": "One two"}', 'j["One", 2]', 'j{"markdown": null}', "j3.5", "f"),
            sequence(
                "uOne tw", "uOne two thr", "b", "uOne", "uOne two three four", "n", "fOne two."
            ),
            sequence("uSTART_RAW\nOne\nEND_RA", "fSTART_RAW\nOne\nEND_RAW"),
        ),
        words=(b"START_RAW", b"END_RAW", b'"}]', b"\xed\xa0\xbd", b"\xed\xb8\x80", b'"text": '),
        stepwise=True,
        hard=(
            b"u" + b"\xed\xa0\xbd" * 40,
            b"j" + b"[" * 3000,
            b"j" + b"9" * 4000,
            b'j{"text": {"text": {"text": ["a", {"output": "b"}]}}}',
            sequence("uA b c", "uX y z", "fA b q", "uA b q", "f"),
            sequence(*("u" + "word " * n for n in range(40))),
            b"u" + b"START_RAWEND_RAW" * 100,
            b"f" + b'"}' * 500,
        ),
    ),
    "growing_text": Target(
        run_growing_text,
        "A growing text is sent as the final text would be, wherever the partials end.",
        (
            b"\0\0Good morning, all of you.",
            "\x01\x02Zwei Züge, 三列火车 and\n\n one 😀 more.".encode(),
            b'\x02\x03She said "no"}, and left.',
        ),
        words=(b"START_RAW", b"END_RAW", b'"}]', b"\xed\xa0\xbd", b"\xed\xb8\x80", b"\n"),
        max_bytes=1024,
        hard=(
            b"\x03\x00" + b"\xed\xa0\xbd\xed\xb8\x80" * 20,
            b"\x00\x01" + b"END_RAW START_RAW " * 20,
            b"\x01\x00" + b"]" * 50,
            b"\x02\x00" + b" \n\t" * 40,
        ),
    ),
    "plain_text": Target(
        run_plain_text,
        "Markup is taken out in the same way however the text is cut, and nothing is added.",
        (
            b"\0Some *words* with **weight**, `code`, and a [link](https://example.org/a_b).",
            b"\x01# A title\n\n- one\n- two\n\n```python\nprint()\n```\n> <b>so</b> &amp; left",
            b"\x02| a | b |\n|---|---|\n| 1 < 2 | 3 > 2 |\n![x](y) <break time='1s'/> 2 * 3 * 4",
        ),
        words=(b"```", b"**", b"](", b"<!--", b"-->", b"&#x", b"</", b"__", b"\n- ", b"~~"),
        max_bytes=1024,
        hard=(
            b"\0" + b"<" * 400,
            b"\x01" + b"[" * 300 + b"](" * 50,
            b"\x02" + b"*_`~" * 100,
            b"\x03" + b"&" * 300 + b"#1;" * 50,
            b"\x04" + b"```" * 90,
            b"\x05" + b"<!--" * 90,
            b"\x06" + b"![](" * 90 + b"|\n" * 90,
        ),
    ),
    "plugin_settings": Target(
        run_settings,
        "Any environment gives settings that can be used, and says what is wrong with the rest.",
        (
            b"URL=ws://127.0.0.1:8765/v1/speech\nLEAD_MS=60\nBARRIER=hangup, wait\nSPEED=1.5",
            b"OPENAI_URL=http://[::1]:8000/v1\nBACKEND=openai\nREALTIME_STREAM=yes\nVOICE=Vivian",
            b"SIP_LISTEN=:5060\nSIP_RTP_PORTS=10000-10100\nSIP_ALLOW=+4930*\nLOCAL=nowhere",
        ),
        words=(b"URL=", b"ws://", b"LEAD_MS=", b"1e999", b"SEED=", b"SIP_", b"]", b"nan"),
        hard=(
            b"LEAD_MS=" + b"9" * 3000,
            b"SPEED=nan\nIDLE_S=inf\nSEED=-0",
            b"URL=ws://[::1\nWS_URL=ws://[::1\nSIP_LISTEN=[::1]:99999999",
            b"BARRIER=" + b", " * 500,
            "LEAD_MS=٦٠\nSEED=²".encode(),
            b"UNKNOWN=1\n=1\n" + b"X" * 500 + b"=1",
        ),
    ),
    "destination": Target(
        run_destination,
        "A number or address that a model writes is dialled as one address, or refused.",
        (
            b"sip:pbx.example.org\n+49 (30) 123456",
            b"\nsip:bob@192.0.2.7:5070;transport=tcp",
            b"pbx.example.org:5060\ntel:+1-212-555-0100;ext=5",
        ),
        words=(b"sip:", b"sips:", b"tel:", b"@", b";transport=", b"?Replaces=", b"112", b"%31"),
        max_bytes=512,
        hard=(
            b"\n112",
            b"pbx\n9,112",
            b"pbx\ntel:112;phone-context=x",
            "pbx\n\uff11\uff11\uff12".encode(),
            b"pbx\n%31%31%32",
            b"\nsip:112@x",
            b"\nsip:a@b\r\nRoute: <sip:c>",
            b"[::1\nsip:[::1",
            b"\n" + b"1" * 300,
        ),
    ),
}
