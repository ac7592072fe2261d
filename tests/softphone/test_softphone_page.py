"""docs/softphone.md: its program runs as it is printed, and names what there is."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import aiohttp
import pytest
import typer.testing

from qwen3tts_cli.main import app
from qwen3tts_cli.options.page import PORT, TOKEN_ENV
from qwen3tts_phone.softphone import connection
from qwen3tts_phone.softphone.messages import PAGE_MESSAGES, PROTOCOL, SERVER_MESSAGES
from qwen3tts_phone.softphone.settings import SoftphoneSettings

PAGE = (Path(__file__).parents[2] / "docs" / "softphone.md").read_text("utf-8")


def table(heading: str) -> str:
    """The first column of the table under this heading."""
    rows = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return "\n".join(row.split("|")[1] for row in rows)


def named(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def test_the_page_names_every_message_and_no_other() -> None:
    assert PROTOCOL in PAGE
    assert named(table("Page → server")) == set(PAGE_MESSAGES)
    assert named(table("Server → page")) == set(SERVER_MESSAGES)


def test_the_page_names_the_close_codes() -> None:
    codes = {int(each) for each in re.findall(r"\b44\d\d\b", PAGE)}
    assert codes == {
        connection.BAD_TOKEN,
        connection.NO_HELLO,
        connection.TAKEN_OVER,
        connection.SESSION_OVER,
    }


def test_the_options_are_there_and_their_defaults_as_told() -> None:
    text = typer.testing.CliRunner().invoke(
        app, ["softphone", "--help-all"], env={"COLUMNS": "300", "TERM": "dumb"}
    )
    options = {each.split()[0] for each in named(table("Option")) if each.startswith("--")}
    for option in options:
        assert option in text.output, option
    settings = SoftphoneSettings()
    assert f"| {settings.host}, {PORT} |" in PAGE
    assert TOKEN_ENV in PAGE
    assert f"| {settings.max_calls} | concurrent calls" in PAGE
    assert f"| {settings.max_call_s:.0f} | longest call" in PAGE
    assert f"{settings.max_sessions} pages" in PAGE
    assert f"{settings.text_chars:,} characters" in PAGE
    assert f"{settings.upload_bytes / 1e6:g} MB and {settings.upload_s:.0f} s" in PAGE
    assert f"for {settings.resume_s:.0f} s" in PAGE


@pytest.mark.network
async def test_the_printed_program_serves_the_page() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", code.replace("port=8780", "port=0")),
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().strip()
            async with aiohttp.ClientSession() as http, http.get(url) as answer:
                assert answer.status == 200
                assert "<html" in await answer.text()
    finally:
        process.kill()
        await process.wait()
