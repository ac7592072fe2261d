from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.providers import ProviderManager
from mr_qwen3tts.host import PROVIDER, Host

AUDIO = bytes(160)


class Managers:
    """The host's managers, and what was asked of them."""

    def __init__(self) -> None:
        self.services = ProviderManager()
        self.commands = ProviderManager()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.host = Host(self.services, self.commands)

    def old_sip(self, answer: object = True) -> None:
        async def sip_audio_out_chunk(audio_chunk: bytes, context: Any = None) -> object:
            self.calls.append(("chunk", {"audio_chunk": audio_chunk, "context": context}))
            return answer

        self.add(sip_audio_out_chunk)

    def new_sip(self, answer: object = True) -> None:
        async def sip_audio_out_chunk(
            audio_chunk: bytes, timestamp: float | None = 0.0, context: Any = None
        ) -> object:
            named = {"audio_chunk": audio_chunk, "timestamp": timestamp, "context": context}
            self.calls.append(("chunk", named))
            return answer

        async def sip_start_audio_response(context: Any) -> object:
            self.calls.append(("start", {"context": context}))
            return answer

        async def sip_end_audio_response(context: Any) -> object:
            self.calls.append(("end", {"context": context}))
            return answer

        async def sip_is_audio_halted(context: Any) -> object:
            return answer

        for each in (
            sip_audio_out_chunk,
            sip_start_audio_response,
            sip_end_audio_response,
            sip_is_audio_halted,
        ):
            self.add(each)

    def add(self, service: Any) -> None:
        self.services.register_function(service.__name__, "mr_sip", service)


@pytest.fixture
def managers() -> Managers:
    return Managers()


def agent(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(log_id="call", agent_name="clerk", agent=more, data={})


CALL = agent()


async def test_without_a_sip_plugin_nothing_needs_to_be_told(managers: Managers) -> None:
    host = managers.host
    assert not host.has_sip
    assert await host.start_response(CALL)
    assert not await host.halted(CALL)
    await host.end_response(CALL)


async def test_the_old_sip_plugin_is_given_no_timestamp(managers: Managers) -> None:
    managers.old_sip()
    assert managers.host.has_sip
    assert await managers.host.start_response(CALL)
    assert await managers.host.chunk(CALL, AUDIO)
    await managers.host.end_response(CALL)
    assert managers.calls == [("chunk", {"audio_chunk": AUDIO, "context": CALL})]


async def test_the_new_sip_plugin_is_told_of_start_and_end(managers: Managers) -> None:
    managers.new_sip()
    host = managers.host
    assert await host.start_response(CALL)
    assert await host.chunk(CALL, AUDIO)
    await host.end_response(CALL)
    assert await host.halted(CALL)
    assert managers.calls == [
        ("start", {"context": CALL}),
        ("chunk", {"audio_chunk": AUDIO, "timestamp": None, "context": CALL}),
        ("end", {"context": CALL}),
    ]


async def test_another_name_of_the_audio_is_found(managers: Managers) -> None:
    async def sip_audio_out_chunk(chunk: bytes, *more: Any, context: Any) -> None:
        managers.calls.append(("chunk", {"chunk": chunk, "context": context}))

    managers.add(sip_audio_out_chunk)
    assert await managers.host.chunk(CALL, AUDIO)
    assert managers.calls == [("chunk", {"chunk": AUDIO, "context": CALL})]


async def test_a_service_that_cannot_be_looked_into_is_called_like_the_old_one(
    managers: Managers,
) -> None:
    class Opaque:
        __signature__ = "none"

        async def __call__(self, **named: Any) -> bool:
            managers.calls.append(("chunk", named))
            return True

    managers.services.register_function("sip_audio_out_chunk", "mr_sip", Opaque())
    assert await managers.host.chunk(CALL, AUDIO)
    assert managers.calls == [("chunk", {"audio_chunk": AUDIO, "context": CALL})]


async def test_a_service_that_takes_anything_gets_no_timestamp(managers: Managers) -> None:
    async def sip_audio_out_chunk(**named: Any) -> bool:
        managers.calls.append(("chunk", named))
        return True

    managers.add(sip_audio_out_chunk)
    await managers.host.chunk(CALL, AUDIO)
    assert managers.calls == [("chunk", {"audio_chunk": AUDIO, "context": CALL})]


async def test_another_implementation_is_looked_at_anew(managers: Managers) -> None:
    managers.old_sip()
    await managers.host.chunk(CALL, AUDIO)
    managers.services.functions.clear()
    managers.new_sip()
    await managers.host.chunk(CALL, AUDIO)
    assert "timestamp" in managers.calls[-1][1]


async def test_only_false_is_a_refusal(managers: Managers) -> None:
    managers.new_sip(answer=None)
    assert await managers.host.chunk(CALL, AUDIO)
    assert await managers.host.start_response(CALL)
    managers.services.functions.clear()
    managers.new_sip(answer=False)
    assert not await managers.host.chunk(CALL, AUDIO)
    assert not await managers.host.start_response(CALL)
    assert not await managers.host.halted(CALL)


# --- who speaks

PROVIDERS = [PROVIDER, "mr_eleven_stream", "mr_other"]
names = st.sampled_from([*PROVIDERS, "elsewhere"])
agents = st.fixed_dictionaries(
    {},
    optional={
        "required_plugins": st.none() | st.lists(names, max_size=3),
        "preferred_providers": st.none()
        | st.lists(names, max_size=3)
        | st.dictionaries(st.sampled_from(["speak", "call"]), names),
    },
)


@given(
    registered=st.lists(st.sampled_from(PROVIDERS), min_size=1, unique=True),
    held=st.none() | agents,
    data=st.fixed_dictionaries({}, optional={"PREFERRED_PROVIDER": names}),
)
async def test_we_speak_where_the_host_would_call_us(
    registered: list[str], held: dict[str, Any] | None, data: dict[str, Any]
) -> None:
    managers = Managers()
    for provider in registered:

        async def speak(text: str, context: Any, provider: str = provider) -> str:
            return provider

        managers.commands.register_function("speak", provider, speak)
    held = {name: value for name, value in (held or {}).items() if value is not None}
    context = SimpleNamespace(agent=held, data=data)
    called = await managers.commands.speak(text="x", context=context)
    assert managers.host.speaks_here(context) == (called == PROVIDER)


def test_an_agent_that_leaves_its_lists_empty_takes_the_first(managers: Managers) -> None:
    for provider in PROVIDERS:
        managers.commands.register_function("speak", provider, print)
    assert managers.host.speaks_here(agent(required_plugins=None, preferred_providers=None))
    assert managers.host.speaks_here(None)
    assert managers.host.speaks_here(SimpleNamespace(agent=None, data=None))


def test_a_required_plugin_that_does_not_speak_decides_nothing(managers: Managers) -> None:
    for provider in PROVIDERS:
        managers.commands.register_function("speak", provider, print)
    assert managers.host.speaks_here(agent(required_plugins=["elsewhere"]))
    assert managers.host.speaks_here(agent(preferred_providers={"call": "mr_other"}))
    assert not managers.host.speaks_here(agent(required_plugins=["elsewhere", "mr_other"]))


def test_a_command_of_nobody_is_not_ours(managers: Managers) -> None:
    assert not managers.host.speaks_here(CALL)
    managers.commands.register_function("speak", "mr_other", print)
    assert not managers.host.speaks_here(CALL)
    managers.commands.register_function("say", PROVIDER, print)
    assert managers.host.speaks_here(CALL, "say")


# --- personas


def personas_of(managers: Managers, known: dict[str, dict[str, Any]]) -> None:
    async def get_persona_data(persona_name: str, context: Any = None) -> dict[str, Any]:
        if persona_name not in known:
            raise LookupError(f"Persona {persona_name} not found")
        return known[persona_name]

    managers.add(get_persona_data)


async def test_the_persona_is_the_agents_own(managers: Managers) -> None:
    personas_of(managers, {})
    persona = {"name": "Ann", "voice_id": "ann", "voice_samples": []}
    assert await managers.host.persona(agent(persona=persona)) == persona


async def test_the_samples_are_looked_for_where_they_are_missing(managers: Managers) -> None:
    personas_of(managers, {"Ann": {"voice_id": "old", "voice_samples": ["/a.wav"]}})
    persona = await managers.host.persona(agent(persona={"name": "Ann", "voice_id": "ann"}))
    assert persona == {"name": "Ann", "voice_id": "ann", "voice_samples": ["/a.wav"]}


async def test_a_persona_may_be_a_name_alone(managers: Managers) -> None:
    personas_of(managers, {"Ann": {"voice_id": "ann"}})
    assert await managers.host.persona(agent(persona="Ann")) == {"voice_id": "ann"}


async def test_an_agent_that_is_not_loaded_is_looked_up(managers: Managers) -> None:
    async def get_agent_data(agent_name: str, context: Any = None) -> dict[str, Any]:
        return {"persona": {"voice_id": f"voice of {agent_name}"}}

    managers.add(get_agent_data)
    assert (await managers.host.persona(agent()))["voice_id"] == "voice of clerk"


async def test_a_persona_that_cannot_be_found_is_none(managers: Managers) -> None:
    assert await managers.host.persona(None) == {}
    assert await managers.host.persona(agent(persona="Ann")) == {}
    personas_of(managers, {})
    assert await managers.host.persona(agent(persona="Ann")) == {}
    assert await managers.host.persona(agent(persona=["Ann"])) == {}
    assert await managers.host.persona(agent(persona={"name": "Ann"})) == {"name": "Ann"}


async def test_all_personas_are_found_and_broken_ones_are_left_out(
    managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await managers.host.personas() == []
    for name in ("Ann", "Bob", "Broken"):
        folder = tmp_path / "personas" / "local" / name
        folder.mkdir(parents=True)
        (folder / "persona.json").write_text(json.dumps({"name": name}))
    (tmp_path / "personas" / "local" / "empty").mkdir()
    assert await managers.host.personas() == []
    personas_of(managers, {"Ann": {"voice_id": "ann"}, "Bob": {"voice_id": "bob"}})
    found = await managers.host.personas()
    assert [each["voice_id"] for each in found] == ["ann", "bob"]
