"""What a balancer is told."""

from __future__ import annotations

import httpx

from qwen3tts_engine.wrapped import WrappedEngine
from qwen3tts_server.app import create_app
from tests.engine.fake_engine import FakeEngine


class Away(FakeEngine):
    there = True

    def healthy(self) -> bool:
        return self.there


async def test_ready_follows_the_start_the_engines_health_and_the_drain() -> None:
    engine = Away()
    app = create_app(WrappedEngine(engine))
    service = app.state.service

    async def asked() -> tuple[int, str]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.get("/ready")
            assert (await client.get("/health")).status_code == 200
        return answer.status_code, answer.json()["status"]

    assert await asked() == (503, "starting")
    await service.start()
    assert await asked() == (200, "ready")
    engine.there = False
    assert await asked() == (503, "engine away")
    engine.there = True
    await service.drain(0)
    assert await asked() == (503, "draining")
    await service.close()
