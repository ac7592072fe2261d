"""The compose file names only what is there: paths, extras, variables, options, ports, volumes."""

from __future__ import annotations

import asyncio
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from qwen3tts_cli.main import app
from qwen3tts_cli.options.page import PORT as PAGE_PORT
from qwen3tts_phone.sip import SipEndpoint, SipSettings
from qwen3tts_server.settings import ServerSettings
from tests.image_steps import instructions

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "docker"
TEXT = (FOLDER / "compose.yaml").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("server", "agent", "softphone")
PAGE = (ROOT / "docs" / "docker.md").read_text("utf-8")


def filled(text: str) -> str:
    """The text with the values that its variables have where nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def options(command: str) -> dict[str, Any]:
    click: Any = typer.main.get_command(app)
    params = click.commands[command].params
    return {option: each for each in params for option in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("name", ["agent", "softphone"])
def test_a_service_starts_a_command_with_options_and_values_that_it_has(name: str) -> None:
    program, command, *rest = map(filled, SERVICES[name]["entrypoint"])
    assert program == "mr-qwen3tts"
    known = options(command)
    while rest:
        option = known[rest.pop(0)]
        if not (option.is_flag or option.count):
            value = rest.pop(0)
            assert not value.startswith("--")
    given = SERVICES[name]["entrypoint"]
    assert given[given.index("--stt") + 1] == "whisper"
    assert f":{ServerSettings().port}/" in given[given.index("--server") + 1]


def test_one_image_is_built_of_a_dockerfile_and_extras_that_there_are() -> None:
    build = SERVICES["server"]["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    dockerfile = context / build["dockerfile"]
    declared = [rest.split("=")[0] for name, rest in instructions(dockerfile) if name == "ARG"]
    assert set(build["args"]) <= set(declared)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(build["args"]["EXTRAS"].split(","))
    assert extras <= set(project["optional-dependencies"])
    assert {"voice", "stt-offline", "phone", "webrtc", "server"} <= extras
    assert {SERVICES[name]["image"] for name in OURS} == {"mr-qwen3tts:voice"}
    for each in SERVICES.values():
        assert re.search(r":(?!latest$)[\w.]+$", each["image"]), "no version"


def test_the_containers_have_no_rights_that_they_do_not_need() -> None:
    steps = instructions(ROOT / SERVICES["server"]["build"]["dockerfile"])
    [(_, user)] = [step for step in steps if step[0] == "USER"]
    assert user != "root"
    for name in OURS:
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert "user" not in service
        assert "privileged" not in service
    for service in SERVICES.values():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), port


def test_no_key_stands_in_the_file() -> None:
    key = options("answer")["--key-env"].default
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search("KEY|TOKEN|PASSWORD", variable):
                assert value == f"${{{variable}:-}}", (name, variable)
                assert variable == key
    assert key in SERVICES["agent"]["environment"]


def test_volumes_keep_models_and_what_the_image_writes() -> None:
    declared = set(COMPOSE["volumes"])
    used = {each.split(":")[0] for one in SERVICES.values() for each in one.get("volumes", ())}
    assert used == declared
    steps = instructions(ROOT / SERVICES["server"]["build"]["dockerfile"])
    [(_, written)] = [step for step in steps if step[0] == "VOLUME"]
    assert SERVICES["server"]["volumes"] == [f"state:{written}"]
    for name in OURS:
        assert SERVICES[name]["environment"]["HF_HOME"].startswith(f"{written}/")


def test_every_service_that_stays_is_asked_for_its_health() -> None:
    dockerfile = ROOT / SERVICES["server"]["build"]["dockerfile"]
    assert any(name == "HEALTHCHECK" for name, _ in instructions(dockerfile))
    for name in ("model", "agent", "softphone"):
        assert SERVICES[name]["healthcheck"]["test"][0] == "CMD"
    copied = [rest.split() for name, rest in instructions(dockerfile) if name == "COPY"]
    [folder] = [to for *sources, to in copied if "deploy/docker/answers_options.py" in sources]
    check = [filled(part) for part in SERVICES["agent"]["healthcheck"]["test"]]
    assert check[2] == f"{folder}answers_options.py"
    given = [filled(part) for part in SERVICES["agent"]["entrypoint"]]
    assert check[3:] == [given[given.index("--host") + 1], given[given.index("--port") + 1]]
    page = [filled(part) for part in SERVICES["softphone"]["entrypoint"]]
    assert page[page.index("--port") + 1] == str(PAGE_PORT)
    assert f":{PAGE_PORT}/" in SERVICES["softphone"]["healthcheck"]["test"][3]
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= set(SERVICES)


def test_every_line_of_dockerignore_that_keeps_something_names_what_there_is() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    for each in (line[1:] for line in lines if line.startswith("!")):
        assert (ROOT / each).exists(), each


KEYS = {
    "": "name services networks volumes secrets configs include",
    "service": "annotations attach build blkio_config cap_add cap_drop cgroup cgroup_parent command"
    " configs container_name cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period"
    " cpu_rt_runtime cpu_shares cpus cpuset credential_spec depends_on deploy develop"
    " device_cgroup_rules devices dns dns_opt dns_search domainname entrypoint env_file environment"
    " expose extends external_links extra_hosts gpus group_add healthcheck hostname image init ipc"
    " isolation labels label_file links logging mac_address mem_limit mem_reservation"
    " mem_swappiness memswap_limit models network_mode networks oom_kill_disable oom_score_adj pid"
    " pids_limit platform ports post_start pre_stop privileged profiles provider pull_policy"
    " read_only restart runtime scale secrets security_opt shm_size stdin_open stop_grace_period"
    " stop_signal storage_opt sysctls tmpfs tty ulimits use_api_socket user userns_mode uts volumes"
    " volumes_from working_dir",
    "build": "additional_contexts args cache_from cache_to context dockerfile dockerfile_inline"
    " entitlements extra_hosts isolation labels network no_cache platforms privileged pull secrets"
    " shm_size ssh tags target ulimits",
    "healthcheck": "disable interval retries start_interval start_period test timeout",
    "depends_on": "condition required restart",
}
"""What the Compose specification knows, by section (compose-spec, 05-services.md and others)."""
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
SECONDS = re.compile(r"\d+(s|m)")


def test_the_file_has_only_keys_that_compose_knows() -> None:
    known = {section: set(names.split()) for section, names in KEYS.items()}
    assert {each for each in COMPOSE if not each.startswith("x-")} <= known[""]
    for name, service in SERVICES.items():
        assert set(service) <= known["service"], name
        assert set(service.get("build", {})) <= known["build"], name
        check = service.get("healthcheck", {})
        assert set(check) <= known["healthcheck"], name
        for key in set(check) & {"interval", "timeout", "start_period"}:
            assert SECONDS.fullmatch(check[key]), (name, key)
        for needed in service.get("depends_on", {}).values():
            assert set(needed) <= known["depends_on"], name
            assert needed["condition"] in CONDITIONS, name
        assert service.get("restart", "no") in ("no", "always", "on-failure", "unless-stopped")
        assert SECONDS.fullmatch(service.get("stop_grace_period", "10s")), name
        assert not (service.get("network_mode") == "host" and "ports" in service), name


def test_the_page_names_variables_and_commands_that_there_are() -> None:
    variables = set(re.findall(r"\$\{(\w+):-", TEXT))
    for each in variables:
        assert f"`{each}`" in PAGE, each
    assert set(re.findall(r"`([A-Z]+_[A-Z_]+)`", PAGE)) <= variables
    for services in re.findall(r"(?m)^ *docker compose .*?(?:up|logs|exec)(.*)$", PAGE):
        named = [word for word in services.split() if not word.startswith("-")]
        assert not named or named[0] in SERVICES, named


@pytest.mark.network
@pytest.mark.asyncio
async def test_the_health_check_of_the_telephone_sees_whether_it_answers() -> None:
    answers = runpy.run_path(str(FOLDER / "answers_options.py"))["answers"]
    async with SipEndpoint(SipSettings()) as endpoint:
        port = endpoint.port
        assert await asyncio.to_thread(answers, "127.0.0.1", port)
    assert not await asyncio.to_thread(answers, "127.0.0.1", port, 0.2)
