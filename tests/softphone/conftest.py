"""Fixtures of the softphone's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.softphone.browser import Chromium, running_chromium


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Chromium]:
    """One Chromium for a module, whose tests carry ``pytest.mark.asyncio(loop_scope="module")``."""
    async with running_chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running
