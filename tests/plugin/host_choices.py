"""Which implementation a host's managers call: run with the real ``lib`` or the fake one.

Prints JSON: what each question of `ask` was answered with.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from typing import Any

AGENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a list": {"preferred_providers": ["second", "third"]},
    "a list of others": {"preferred_providers": ["elsewhere"]},
    "a mapping": {"preferred_providers": {"speak": "third"}},
    "a mapping of others": {"preferred_providers": {"call": "third"}},
    "required": {"required_plugins": ["third"], "preferred_providers": ["second"]},
    "both required": {"required_plugins": ["third", "second"]},
}
DATA: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a provider": {"PREFERRED_PROVIDER": "second"},
    "another": {"PREFERRED_PROVIDER": "elsewhere"},
}
SERVICES = ("speak", "sip_audio_out_chunk")


class Context:
    """What the host's has, as far as the choice asks for it."""

    def __init__(self, agent: Any, data: dict[str, Any]) -> None:
        self.agent = agent
        self.data = dict(data)
        self.flags: list[str] = []


def implementation(provider: str) -> Any:
    async def called(*args: Any, **kwargs: Any) -> Any:
        shown = ["context" if isinstance(each, Context) else each for each in args]
        return [provider, shown, sorted(kwargs)]

    return called


async def ask() -> dict[str, Any]:
    from lib.pipelines.pipelines import PipelineManager
    from lib.providers import ProviderManager
    from lib.providers.hooks import hook_manager

    manager = ProviderManager()
    for name in SERVICES:
        for provider in ("first", "second", "third", "second"):
            manager.register_function(name, provider, implementation(provider), None, "", [])
    answers: dict[str, Any] = {"names": {name: len(manager.functions[name]) for name in SERVICES}}
    for name in SERVICES:
        method = getattr(manager, name)
        for agent, held in AGENTS.items():
            for data, flags in DATA.items():
                context = Context(held, flags)
                answers[f"{name}, {agent}, {data}"] = await method(text="x", context=context)
        answers[f"{name}, by place"] = await method(Context({}, {}), text="x")
        answers[f"{name}, no agent"] = await method(text="x", context=Context(None, {}))
        manager.context = Context({"preferred_providers": ["third"]}, {})
        answers[f"{name}, last context"] = await method(text="x")
        del manager.context
    answers["empty"] = await manager.execute("speak", text="", context=None)
    try:
        await manager.execute("nobody", text="x")
    except ValueError as error:
        answers["unknown"] = str(error)
    answers["hooks"] = await hook_manager.execute_hooks("nobody")
    pipes = PipelineManager()

    async def broken(data: Any, context: Any) -> Any:
        raise ValueError("broken")

    async def late(data: Any, context: Any) -> Any:
        return [*data, "late"]

    def early(data: Any, context: Any) -> Any:
        return [*data, "early"]

    for pipe, priority in ((late, 10), (broken, 5), (early, 1)):
        pipes.register_pipe("words", pipe, None, "", priority)
    answers["pipes"] = await pipes.words([], context=None)
    answers["no pipes"] = await pipes.nobody(["as it was"])
    return answers


if __name__ == "__main__":
    with contextlib.redirect_stdout(io.StringIO()):
        result = asyncio.run(ask())
    print(json.dumps(result, sort_keys=True))
