"""What a key may do: roles, the routes that ask for them, and whose an uploaded voice is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.routing import WebSocketRoute

from qwen3tts_server.app import create_app
from qwen3tts_server.configuration import KEYS_ENV, load_configuration
from qwen3tts_server.dialects.table import dialects
from qwen3tts_server.keys import ROUTES, WEBSOCKET, ApiKeys, Role, RouteRoles
from qwen3tts_server.settings import AccessSettings, ServerSettings
from qwen3tts_wire.errors import BadRequest
from tests.engine.fake_engine import FakeEngine
from tests.server.openai.caller import Caller, calling
from tests.server.openai.test_voices import FORM, VOICES_PATH, upload
from tests.server.ops.asgi import scope_of, sent_by
from tests.server.voices.world import Cloner, wav

KEYS = {Role.SPEAK: "speak-key", Role.VOICES: "voices-key", Role.ADMIN: "admin-key"}
OTHER = "other-speak-key"
ROLES = RouteRoles(ROUTES, *(each.ROUTES for each in dialects()))
LOCKED = AccessSettings(
    api_keys=(KEYS[Role.SPEAK], OTHER),
    voices_keys=(KEYS[Role.VOICES],),
    admin_keys=(KEYS[Role.ADMIN],),
)


def bearer(key: str | None) -> list[tuple[str, str]]:
    return [] if key is None else [("Authorization", f"Bearer {key}")]


def application(folder: Path) -> FastAPI:
    settings = ServerSettings(access=LOCKED, profiler=True, profile_folder=str(folder))
    return create_app(FakeEngine(), settings)


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every route that is served."""
    found: list[tuple[str, str]] = []
    for route in app.routes:
        methods = getattr(route, "methods", None) or ()
        if isinstance(route, WebSocketRoute):
            methods = (WEBSOCKET,)
        found += [(method, getattr(route, "path", "")) for method in methods if method != "HEAD"]
    return found


def test_every_route_has_a_role_and_every_role_a_route(tmp_path: Path) -> None:
    assert sorted(routes(application(tmp_path))) == sorted(ROLES.routes)


async def test_every_route_asks_for_its_role_and_lets_the_ones_above_in(tmp_path: Path) -> None:
    app = application(tmp_path)
    for method, path in routes(app):
        needed = ROLES.routes[method, path]
        where = (
            path.replace("{name}", "x").replace("{model:path}", "a/b").replace("{path:path}", "")
        )
        kind = "websocket" if method == WEBSOCKET else "http"
        for key in (None, "wrong", *KEYS.values()):
            scope = scope_of(kind, where, headers=bearer(key))
            if kind == "http":
                scope["method"] = method
            (start, *_) = await sent_by(app, scope)
            status = start.get("status", 101)
            held = next((role for role, each in KEYS.items() if each == key), None)
            if needed is None or (held is not None and held >= needed):
                assert status not in (401, 403), (method, path, key)
            else:
                assert status == (401 if held is None else 403), (method, path, key)


def test_a_route_without_a_role_keeps_the_application_from_being_made() -> None:
    app = FastAPI()
    RouteRoles(ROUTES).check(FastAPI().routes)

    @app.post("/v1/new")
    async def new() -> None: ...

    with pytest.raises(LookupError, match="POST /v1/new"):
        RouteRoles(ROUTES).check(app.routes)
    mounted = FastAPI()
    mounted.mount("/files", FastAPI())
    with pytest.raises(LookupError, match="Mount"):
        RouteRoles(ROUTES).check(mounted.routes)


def test_head_is_get_and_what_is_not_served_asks_for_a_key() -> None:
    assert ROLES.needed("HEAD", "/metrics") is Role.SPEAK
    assert ROLES.needed("POST", "/start_profile") is Role.ADMIN
    assert ROLES.needed("GET", "/nothing") is Role.SPEAK


def test_keys_have_the_role_of_their_list_or_their_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("bare\nnamed speak\nkeeper voices  # Berta\nroot\tadmin\n", "utf-8")
    file.chmod(0o600)
    keys = ApiKeys.of(AccessSettings(api_keys=("a", "b"), admin_keys=("b",), api_key_file=file))
    found = {}
    for key in ("a", "b", "bare", "named", "keeper", "root"):
        grant = keys.grant(key)
        assert grant is not None
        found[key] = grant.role
        assert len(grant.owner) == 32
    assert found == {
        **dict.fromkeys(("a", "bare", "named"), Role.SPEAK),
        "keeper": Role.VOICES,
        **dict.fromkeys(("b", "root"), Role.ADMIN),
    }
    assert keys.grant("keeper voices") is None
    assert keys.grant("voices") is None


@pytest.mark.parametrize("line", ["key boss", "key admin speak", "key Admin", "admin:key x"])
def test_a_line_with_another_word_behind_the_key_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "keys"
    file.write_text(line, "utf-8")
    with pytest.raises(BadRequest) as error:
        ApiKeys((), file)
    assert "speak, voices, admin" in error.value.remedy
    assert line not in error.value.message


def test_keys_of_each_role_come_from_the_environment() -> None:
    env = {"QWEN3TTS_API_KEYS": "a b", "QWEN3TTS_VOICES_KEYS": "c", "QWEN3TTS_ADMIN_KEYS": "d e"}
    assert set(env) == set(KEYS_ENV)
    configuration = load_configuration(None, env)
    access = configuration.server.access
    assert (access.api_keys, access.voices_keys) == (("a", "b"), ("c",))
    assert access.admin_keys == ("d", "e")
    assert access.has_keys
    told = configuration.resolved()["server"]["access"]
    assert not {"c", "d"} & set(map(str, told.values()))
    assert not AccessSettings().has_keys


def headers(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", **more}


async def bring(caller: Caller, key: str, **fields: Any) -> int:
    body = upload(**fields)
    return (await caller.send("POST", VOICES_PATH, body, headers(key, **FORM))).status


async def seen(caller: Caller, key: str) -> tuple[list[str], list[str]]:
    """The uploaded voices that both lists have."""
    first = (await caller.send("GET", VOICES_PATH, b"", headers(key))).json()
    second = (await caller.send("GET", "/v1/voices", b"", headers(key))).json()["voices"]
    uploaded = [each["name"] for each in first["uploaded_voices"]]
    assert set(uploaded) == set(first["voices"]) & {"Anna", "Berta"}
    clones = [each["name"] for each in second if each["id"].startswith("clone:")]
    return uploaded, clones


async def test_a_key_lists_replaces_and_deletes_its_own_voices_only(tmp_path: Path) -> None:
    from qwen3tts_server.settings import VoiceSettings

    mine, keeper = KEYS[Role.SPEAK], KEYS[Role.VOICES]
    settings = ServerSettings(access=LOCKED, voices=VoiceSettings(store=str(tmp_path / "store")))
    async with calling(Cloner(), settings) as caller:
        assert await bring(caller, mine, name="Anna", ref_text="Words.") == 200
        assert await bring(caller, OTHER, name="Berta") == 200
        assert await seen(caller, mine) == (["Anna"], ["Anna"])
        assert await seen(caller, OTHER) == (["Berta"], ["Berta"])
        for role in (Role.VOICES, Role.ADMIN):
            assert await seen(caller, KEYS[role]) == (["Anna", "Berta"], ["Anna", "Berta"])

        async def remove(key: str, name: str) -> int:
            sent = await caller.send("DELETE", f"{VOICES_PATH}/{name}", b"", headers(key))
            return sent.status

        assert await remove(OTHER, "Anna") == 404
        assert await remove(OTHER, "clone:Anna") == 404
        again = wav(1.5)
        assert await bring(caller, OTHER, name="Anna", audio=again, overwrite="true") == 409
        assert await seen(caller, mine) == (["Anna"], ["Anna"])
        assert await bring(caller, mine, name="Anna", audio=again, overwrite="true") == 200
        assert await bring(caller, keeper, name="Berta", audio=again, overwrite="true") == 200
        assert await seen(caller, OTHER) == ([], [])
        assert await remove(mine, "Anna") == 200
        assert await remove(KEYS[Role.ADMIN], "Berta") == 200


async def test_near_names_tell_nothing_of_other_keys_voices() -> None:
    async with calling(Cloner(), ServerSettings(access=LOCKED)) as caller:
        assert await bring(caller, OTHER, name="Annabella") == 200
        mine = headers(KEYS[Role.SPEAK])
        answer = await caller.speak(mine, voice="Annabela")
        assert answer.status == 400
        assert "Annabella" not in answer.error["message"]


def test_the_first_message_of_a_connection_lists_what_its_key_may_see() -> None:
    from starlette.testclient import TestClient

    from qwen3tts_wire.messages import PROTOCOL

    app = create_app(Cloner(), ServerSettings(access=LOCKED))

    def listed(client: TestClient, key: str) -> list[str]:
        with client.websocket_connect(
            "/v1/speech", subprotocols=[PROTOCOL], headers=headers(key)
        ) as socket:
            return [each["id"] for each in socket.receive_json()["voices"]]

    with TestClient(app) as client:
        body = upload(name="Anna")
        sent = client.post(VOICES_PATH, content=body, headers=headers(OTHER, **FORM))
        assert sent.status_code == 200
        assert "clone:Anna" in listed(client, OTHER)
        assert "clone:Anna" not in listed(client, KEYS[Role.SPEAK])
        assert "clone:Anna" in listed(client, KEYS[Role.VOICES])
