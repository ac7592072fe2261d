"""The plugin's page in a real MindRoot: who may see it, and what it tells of a call."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.mindroot_host.call import speaking
from tests.mindroot_host.host import Host
from tests.mindroot_host.install import MINDROOT

pytestmark = pytest.mark.network

PATHS = ["/mr_qwen3tts", "/mr_qwen3tts/state"]
TEXT = "The rehearsal of the brass band begins at a quarter to eight."


@pytest.mark.parametrize("path", PATHS)
async def test_whoever_is_not_signed_in_is_sent_to_the_login(host: Host, path: str) -> None:
    async with host.visit(signed_in=False) as stranger:
        answer = await stranger.client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "/login")


async def test_a_user_who_is_no_administrator_is_refused(host: Host) -> None:
    name, password = "caller", "a password of a caller"
    # Somebody to refuse: the host's own command line makes users.
    create = ["user", "create", name, "caller@example.org", "--password", password]
    program = await asyncio.create_subprocess_exec(
        MINDROOT / "bin" / "mindroot",
        *create,
        cwd=host.folder,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await program.wait() == 0
    async with httpx.AsyncClient(base_url=host.url, timeout=30) as client:
        await client.post("/login", data={"username": name, "password": password})
        answers = [await client.get(path) for path in PATHS]
    assert [answer.status_code for answer in answers] == [403, 403]


async def test_the_page_and_its_files_are_there_for_an_administrator(host: Host) -> None:
    async with host.visit() as admin:
        page = await admin.client.get("/mr_qwen3tts")
        files = [await admin.client.get(f"/mr_qwen3tts/static/page.{end}") for end in ("css", "js")]
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert [file.status_code for file in files] == [200, 200]


async def test_what_was_said_is_on_the_page_and_its_words_are_not(host: Host) -> None:
    async with host.visit() as admin:
        call = await admin.call("json")
        await call.say(speaking(TEXT, token_ms=20))
        await call.finished()
        await call.silence()
        answer = await admin.client.get("/mr_qwen3tts/state")
    assert "brass" not in answer.text
    state = answer.json()
    assert state["unread"] == []
    assert state["connection"]["up"]
    assert state["voices"]["offered"]
    assert call.log_id in [each["log_id"] for each in state["conversations"]["shown"]]
    [said] = [each for each in state["records"]["utterances"] if each["log_id"] == call.log_id]
    assert (said["agent"], said["error"], said["chars"]) == ("json", "", len(TEXT))
    stages = list(said["stages_ms"].values())
    assert None not in stages
    assert stages == sorted(stages)
    assert said["heard_s"] == said["generated_s"] > 1
