"""Words that cannot be spoken are refused before a call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer

from qwen3tts_agent.chat.client import ChatSettings
from qwen3tts_cli.calls.text import TextOptions, TextSource
from qwen3tts_cli.doctor.preflight import check_words, is_speakable
from qwen3tts_cli.options.listening import ListenOptions
from qwen3tts_phone.call.text_sources import MAX_CHARS
from qwen3tts_wire.errors import BadText, LimitExceeded


@pytest.mark.parametrize("text", ["a", "5", "**é**", "🙂 ok", "中", "\u0661", "[yes](http://x)"])
def test_a_letter_or_a_digit_can_be_spoken(text: str) -> None:
    assert is_speakable([text])
    assert is_speakable(list(text))
    check_words(TextSource(text=text))


@pytest.mark.parametrize(
    "text", ["...", "***", "🙂", "—", "% & €", "- - -", "<br>", "```\ncode\n```", "\u200b", "|---|"]
)
def test_marks_symbols_and_emoji_cannot(text: str, tmp_path: Path) -> None:
    assert not is_speakable([text])
    with pytest.raises(BadText, match="--say has no speakable text") as raised:
        check_words(TextSource(text=text))
    assert "letters or digits" in raised.value.remedy
    file = tmp_path / "words.txt"
    file.write_text(text, "utf-8")
    with pytest.raises(BadText, match=r"words\.txt has no speakable text"):
        check_words(TextSource(file=file))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"Good morning.\xff", "is not UTF-8 text: see byte 13"),
        (b"Good morning. " * 30_000 + b"\xe9", "see byte 420000"),
        ("Guten Tag".encode("utf-16"), "is UTF-16 text"),
        (b"MZ\x00\x01", "see byte 2"),
        (b"caf\xc3", "see byte 3"),
    ],
)
def test_a_file_is_read_to_its_end(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes(content)
    with pytest.raises(BadText, match=says) as raised:
        check_words(TextSource(file=file))
    assert raised.value.remedy


def test_a_file_that_cannot_be_read_or_is_too_long_is_refused(tmp_path: Path) -> None:
    for bad in (tmp_path, tmp_path / "none.txt"):
        with pytest.raises(BadText, match="cannot be read"):
            check_words(TextSource(file=bad))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(BadText, match="not a regular file"):
        check_words(TextSource(file=pipe))
    long = tmp_path / "long.txt"
    long.write_text("a" * (MAX_CHARS + 1), "utf-8")
    with pytest.raises(LimitExceeded, match="longer than"):
        check_words(TextSource(file=long))


def test_what_the_agent_says_by_itself_is_checked_too() -> None:
    model = TextSource(chat=ChatSettings("http://127.0.0.1:1/v1"))
    check_words(model, ListenOptions(stt="whisper", greeting="Hello.", filler="One moment."))
    with pytest.raises(BadText, match="--greeting has no speakable text"):
        check_words(model, ListenOptions(stt="whisper", greeting="…"))
    with pytest.raises(BadText, match="--filler has no speakable text"):
        check_words(model, ListenOptions(stt="whisper", filler="🙂"))


@pytest.mark.parametrize("option", ["--say", "--system", "--prompt", "--greeting"])
def test_bytes_of_another_encoding_are_refused(option: str) -> None:
    broken = os.fsdecode(b"caf\xe9")
    words = TextSource(text=broken)
    listening = ListenOptions()
    if option != "--say":
        chat = ChatSettings("http://127.0.0.1:1/v1")
        system, prompt = (broken if option == each else "" for each in ("--system", "--prompt"))
        words = TextSource(chat=chat, system=system, prompt=prompt)
        listening = ListenOptions(greeting=broken if option == "--greeting" else None)
    with pytest.raises(BadText, match=f"{option} is not UTF-8 text: see character 4"):
        check_words(words, listening)


def test_instructions_may_be_empty() -> None:
    check_words(TextSource(chat=ChatSettings("http://127.0.0.1:1/v1"), system="", prompt=""))


@contextmanager
def standard_input(path: str | Path) -> Iterator[None]:
    """Descriptor 0 is that file."""
    kept = os.dup(0)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.dup2(fd, 0)
        yield
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(fd)


def test_a_file_as_standard_input_is_looked_into_and_not_consumed(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    for content, says in (
        (b"***", "has no speakable text"),
        (b"", "has no speakable text"),
        (b"\xff", "byte 0"),
    ):
        file.write_bytes(content)
        with standard_input(file), pytest.raises(BadText, match=f"standard input .*{says}"):
            check_words(TextSource(stdin=True))
    file.write_bytes(b"Good morning.")
    with standard_input(file):
        check_words(TextSource(stdin=True))
        assert os.read(0, 100) == b"Good morning."


def test_no_standard_input_is_told(tmp_path: Path) -> None:
    with (
        standard_input(os.devnull),
        pytest.raises(BadText, match="standard input has no speakable text"),
    ):
        check_words(TextSource(stdin=True))


def test_a_pipe_is_not_waited_for() -> None:
    read, write = os.pipe()
    try:
        with standard_input(f"/proc/self/fd/{read}"):
            check_words(TextSource(stdin=True))
    finally:
        os.close(read)
        os.close(write)


def chosen(**options: object) -> TextSource:
    given: dict[str, object] = {
        "say": None,
        "token_ms": 0.0,
        "file": None,
        "stdin": False,
        "by_key": False,
        "llm": None,
        "model": "default",
        "system": "",
        "prompt": "Hello?",
        "key_env": "LLM_KEY",
    }
    made = TextOptions(**{**given, **options})  # type: ignore[arg-type]
    made.check()
    return made.words()


async def test_each_source_of_words_opens_anew_for_each_call(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Good morning.", "utf-8")
    for words in (chosen(say="Good morning."), chosen(say="Good morning.", token_ms=0.001)):
        for _ in range(2):
            assert "".join([delta async for delta in words.open()]) == "Good morning."
    words = chosen(file=path)
    for _ in range(2):
        assert [delta async for delta in words.open()] == ["Good morning."]
    assert not words.once
    assert chosen(stdin=True).once


def test_a_file_that_is_not_there_is_known_before_the_call(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="is not a file"):
        chosen(file=tmp_path)


def test_the_key_of_the_model_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLM_KEY", "sk-1")
    words = chosen(llm="http://model.test/v1")
    assert words.chat is not None
    assert words.chat.api_key == "sk-1"
    assert "sk-1" not in repr(words)
