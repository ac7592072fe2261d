"""Two of our phones in two network namespaces, with `tc netem` on the link between them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.far_phone import SENTENCE, TONES_HZ
from tests.peers.impair import Trouble, bad_network, netem_works

pytestmark = [pytest.mark.network]

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def far_phone(
    namespace: str, host: str, *uri: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A phone as a process in this namespace."""
    paths = ":".join(str(ROOT / each) for each in (".", "server", "pacer", "codecs", "phone"))
    process = await asyncio.create_subprocess_exec(
        *("ip", "netns", "exec", namespace, "env", f"PYTHONPATH={paths}"),
        *(sys.executable, "-m", "tests.peers.far_phone", host, *uri),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    """What it says next."""
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    assert line, "it ended; its error is above"
    return line


async def call_between(one: tuple[str, str], other: tuple[str, str]) -> list[dict[str, Any]]:
    """The first namespace's phone calls the second's; what each has found."""
    async with (
        asyncio.timeout(60),
        far_phone(*other) as callee,
        far_phone(*one, await line_of(callee)) as caller,
    ):
        return [json.loads(await line_of(each)) for each in (caller, callee)]


@pytest.mark.parametrize("loss", [0.05, 0.1])
async def test_a_call_between_two_namespaces_over_a_bad_link(loss: float) -> None:
    if not netem_works():
        pytest.skip("two network namespaces with tc netem are not possible on this machine")
    assert not bad_network.namespaces()
    try:
        bad_network.impair(Trouble("netem", loss=loss, jitter_s=0.04), both=True)
        found = await call_between(*bad_network.NAMESPACES)
    finally:
        bad_network.remove_namespaces()
    assert [each["heard"] for each in found] == [SENTENCE, SENTENCE]
    assert [each["keys"] for each in found] == ["5", "5"]
    for each, hz in zip(found, (TONES_HZ["in"], TONES_HZ["out"]), strict=True):
        assert abs(each["hz"] - hz) <= 3
        # Netem's dice have no fixed seed.
        assert loss / 5 <= each["quality"]["in"]["loss"] <= 3 * loss
        assert each["quality"]["in"]["mos"] < 4.3
