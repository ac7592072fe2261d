"""Fuzz targets: what a page of the softphone sends, and what its browser says of where it is."""

from __future__ import annotations

from qwen3tts_phone.softphone.access import AllowedHosts, bearer_token
from qwen3tts_phone.softphone.messages import (
    MAX_TYPED_CHARS,
    PAGE_MESSAGES,
    Error,
    Type,
    encoded,
    read_page,
)
from qwen3tts_wire.errors import SpeechError
from qwen3tts_wire.fields import DecodeError
from tests.fuzz.target import Target

HOSTS = (AllowedHosts("127.0.0.1", ["box.local"]), AllowedHosts("0.0.0.0"))


def run_page(data: bytes) -> None:
    """One text message."""
    read = read_page(data.decode("utf-8", "replace"))
    if isinstance(read, DecodeError):
        assert isinstance(read.error, SpeechError)
        told = Error(read.error.code, read.error.message, read.error.remedy, read.type or "")
        encoded(told).encode()
        return
    assert PAGE_MESSAGES[read.type] is type(read)
    if isinstance(read, Type):
        assert len(read.text) <= MAX_TYPED_CHARS
    text = encoded(read)
    text.encode()
    again = read_page(text)
    assert not isinstance(again, DecodeError)
    assert read_page(encoded(again)) == again


def run_place(data: bytes) -> None:
    """Two lines: the Host and the Origin of a request; the first also as an Authorization."""
    host, _, origin = data.decode("latin-1").partition("\n")
    bearer_token(host)
    for hosts in HOSTS:
        if hosts.same_origin(origin, host, "http"):
            assert origin.startswith("http://")
        assert not hosts.admits(f"{host}.evil.example")
        assert not hosts.same_origin(f"{origin}.evil.example", host, "http")
    if HOSTS[0].admits(host):
        assert host.lower().startswith(("127.", "localhost", "box.local", "["))


TARGETS = {
    "softphone_page": Target(
        run_page,
        "Any text is a message that can be written and read again, or a typed fault.",
        (
            b'{"type":"hello","token":"abc","resume":"s1"}',
            b'{"type":"call","sdp":"v=0\\r\\n","codec":"opus","record":true,"barge_in":false}',
            b'{"type":"dial","sdp":"v=0","uri":"sip:bob@192.0.2.7"}',
            b'{"type":"type","utterance":3,"text":"Good \\ud83d"}',
            b'{"type":"report","rtt_ms":1.5,"lost":0,"received":400}',
            b'{"type":"key","digit":"#"}',
            b'{"type":"ping","time":-1e3}',
        ),
        (
            *(f'"{name}"'.encode() for name in PAGE_MESSAGES),
            *(b'"sdp":', b'"utterance":', b"true", b"null", b"1e999", b"\\ud800"),
        ),
    ),
    "softphone_place": Target(
        run_place,
        "Any Host and Origin are admitted or not; a foreign name never leads to this machine.",
        (b"127.0.0.1:8780\nhttp://127.0.0.1:8780", b"[::1]:80\nhttps://[::1]", b"Bearer abc\nnull"),
        (b"localhost", b"http://", b"https://", b"[::", b"]", b"@", b":99999", b"box.local"),
        most_bytes=400,
    ),
}

HARD: dict[str, tuple[bytes, ...]] = {
    "softphone_page": (
        b"",
        b"[" * 4000,
        b'{"type":"type","utterance":1e99,"text":""}',
        b'{"type":"type","utterance":true,"text":""}',
        b'{"type":"ping","time":1e999}',
        b'{"type":"hello","token":"a","token":"b"}',
        b'{"type":"hello","token":"\\u0000"}',
        b'{"type":{"type":"call"}}',
        b'{"type":"type","utterance":1,"text":"' + b"\\ud83d" * 600 + b'"}',
        b'{"type":"call","sdp":"' + b"a" * 3000 + b'","engine":"' + b"e" * 200 + b'"}',
        b'{"type":"report","rtt_ms":-0.0,"lost":1e12,"concealed":1e13}',
        '{"type":"listen","sdp":"v=0","call_id":"\u202e\u2028"}'.encode(),
        b"\xed\xa0\x80",
    ),
    "softphone_place": (
        b"[\nhttp://[",
        b"[::1\nhttp://[::1%25eth0]",
        b"127.0.0.1:port\nhttp://127.0.0.1:port",
        b"localhost.\nhttp://user@localhost.",
        b"\xb2.\xb2\nhttp://\xe2\x84\x80.example",
        b"127.0.0.1#@evil.example\nhttp://127.0.0.1#@evil.example",
        b"0x7f.1\nhttp://0x7f.1",
        b"//evil.example\n////",
    ),
}
