"""What every engine must do, done by this one in front of a server of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from qwen3tts_engine.base import Engine
from tests.engine import test_engine_contract as contract
from tests.engine.upstream.peers import OwnPeer, Peered

pytestmark = pytest.mark.network

globals().update({name: test for name, test in vars(contract).items() if name.startswith("test_")})


@pytest.fixture(params=["ws", "http"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    made = Peered(OwnPeer(request.param))
    await made.start()
    yield made
    await made.close()
