"""What ``doctor --server-config`` says of a speech server's files."""

from __future__ import annotations

import json
import re
import socket
import sys
import tomllib
from pathlib import Path

import pytest

from qwen3tts_cli.doctor import checks, targets
from qwen3tts_cli.doctor import command as doctor
from qwen3tts_cli.doctor.checks import EXTRAS, Check, Level
from qwen3tts_cli.doctor.targets import server_checks
from qwen3tts_cli.doctor.weight_files import weight_faults, weight_file_fault
from qwen3tts_cli.main import run
from qwen3tts_engine.qwen3.kernels.requirements import Missing
from tests.conftest import require_package
from tests.sip.certificates import DAY, Authority, Pair


def test_an_old_python_is_named_with_its_remedy() -> None:
    assert checks.python((3, 10, 4)) == Check(
        "Python", Level.FAIL, "3.10.4", "Use Python 3.11 or later."
    )
    assert checks.python((3, 13, 0)).level is Level.OK


def test_all_extras_of_the_metadata_are_looked_at() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert {*EXTRAS} == {*extras} - {"all"}
    for extra, names in EXTRAS.items():
        assert len(names) == len(extras[extra]), extra


def test_a_part_of_a_package_that_is_not_there_is_missing() -> None:
    assert not checks._is_there("no_such_package.part")
    assert not checks._is_there("json.no_such_part")
    assert checks._is_there("json.decoder")


def test_a_missing_extra_is_named_with_the_command_that_installs_it() -> None:
    found = {each.name: each for each in checks.packages(lambda name: name != "httpx")}
    assert found["base packages"].level is Level.OK
    assert found["extra phone"].level is Level.WARN
    assert found["extra phone"].found == "missing: httpx"
    assert found["extra phone"].remedy == "Install it with: pip install 'mr_qwen3tts[phone]'"


def test_a_missing_base_package_is_a_failure() -> None:
    assert next(checks.packages(lambda _: False)).level is Level.FAIL


def test_a_checkpoint_is_looked_into(tmp_path: Path) -> None:
    assert checks.checkpoint(None).level is Level.OK
    assert "is no folder" in checks.checkpoint(tmp_path / "none").found
    assert "has no config.json" in checks.checkpoint(tmp_path).found
    (tmp_path / "config.json").write_text("{}", "utf-8")
    assert "has no *.safetensors" in checks.checkpoint(tmp_path).found
    (tmp_path / "model.safetensors").write_bytes(bytes(10))
    damaged = checks.checkpoint(tmp_path)
    assert damaged.level is Level.FAIL
    assert "config.json" in damaged.found
    assert damaged.remedy
    assert checks.checkpoint(Path("Qwen/Qwen3-TTS")).level is Level.OK


def test_a_whole_checkpoint_is_told_by_its_task(tmp_path: Path) -> None:
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from tests.tiny_models.checkpoint import make_tiny

    folder = make_tiny(tmp_path)["base"]
    found = checks.checkpoint(folder)
    assert found.level is Level.OK
    assert re.fullmatch(r".*: base, 1 file, [1-9]\d*\.\d MB", found.found)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "_torch_version", lambda: checks.NO_TORCH)
        found = checks.checkpoint(folder)
    assert found.level is Level.WARN
    assert "mr_qwen3tts[server,qwen3]" in found.remedy
    (folder / "speech_tokenizer" / "model.safetensors").unlink()
    assert "has no speech_tokenizer" in checks.checkpoint(folder).found


@pytest.mark.parametrize("name", ["model.safetensors", "speech_tokenizer/model.safetensors"])
def test_weights_that_are_not_whole_are_told(tmp_path: Path, name: str) -> None:
    require_package("torch", "pip install 'mr_qwen3tts[qwen3]'")
    from tests.tiny_models.checkpoint import make_tiny

    folder = make_tiny(tmp_path)["base"]
    whole = (folder / name).read_bytes()
    header = int.from_bytes(whole[:8], "little")
    for content, told in (
        (whole[:-1], "cut off"),
        (whole[: len(whole) // 2], "cut off"),
        (whole[:100], "cut off"),
        (whole[:5], "cut off"),
        (b"", "cut off"),
        (whole + b"x", "damaged"),
        (whole[:8] + b"?" * header + whole[8 + header :], "damaged"),
    ):
        (folder / name).write_bytes(content)
        found = checks.checkpoint(folder)
        assert found.level is Level.FAIL
        assert f"{folder / name} is {told}" in found.found
        assert found.remedy


def weights(**entries: object) -> bytes:
    """A file of weights whose tensors have no bytes."""
    header = json.dumps(entries).encode()
    return len(header).to_bytes(8, "little") + header


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}, ""),
        ({"dtype": "F4", "shape": [2], "data_offsets": [0, 0]}, ""),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 0]}, "damaged"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "cut off"),
        ({"dtype": "F32", "shape": [0], "data_offsets": [4, 0]}, "damaged"),
        ({"dtype": "F32", "shape": "x", "data_offsets": [0, 0]}, "damaged"),
        ({"dtype": "F32", "shape": [2]}, "damaged"),
        ([], "damaged"),
    ],
)
def test_a_header_is_believed_where_it_agrees_with_itself(
    tmp_path: Path, entry: object, told: str
) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(weights(one=entry, __metadata__={"format": "pt"}))
    fault = weight_file_fault(file)
    assert told in fault
    assert bool(fault) is bool(told)


def test_shards_that_are_missing_are_told(tmp_path: Path) -> None:
    (tmp_path / "speech_tokenizer").mkdir()
    for folder in (tmp_path, tmp_path / "speech_tokenizer"):
        (folder / "model.safetensors").write_bytes(weights())
    assert list(weight_faults(tmp_path)) == []
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    assert list(weight_faults(tmp_path)) == [f"{tmp_path / 'model.safetensors'} is missing"]
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"one": "a.safetensors", "two": "b.safetensors"}}', "utf-8")
    assert list(weight_faults(tmp_path)) == [f"{tmp_path / 'b.safetensors'} is missing"]
    index.write_text('{"weight_map": []}', "utf-8")
    assert list(weight_faults(tmp_path)) == [f"{index} cannot be read"]


def test_a_torch_that_does_not_see_the_gpu_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA T4, 15360 MiB'\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(checks, "_torch_version", lambda: ", torch 2.0")
    monkeypatch.setattr(checks, "SEES_GPU", "exit('another CUDA')")
    found = checks.gpu(lambda _: str(program))
    assert found.level is Level.WARN
    assert "another CUDA" in found.found
    monkeypatch.setattr(checks, "SEES_GPU", "pass")
    monkeypatch.setattr(checks, "missing", lambda **_: None)
    assert checks.gpu(lambda _: str(program)).level is Level.OK


def test_kernels_that_cannot_be_built_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA L4, 23034 MiB'\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(checks, "_torch_version", lambda: ", torch 2.9")
    monkeypatch.setattr(checks, "SEES_GPU", "pass")
    lacks = Missing("there is no C compiler", "Install gcc.")
    monkeypatch.setattr(checks, "missing", lambda **_: lacks)
    found = checks.gpu(lambda _: str(program))
    assert found.level is Level.WARN
    assert "there is no C compiler" in found.found
    assert (found.remedy or "").startswith("Install gcc.")


def test_no_gpu_is_no_problem() -> None:
    found = checks.gpu(lambda _: None)
    assert found.level is Level.OK
    assert "none found" in found.found


def test_a_driver_that_fails_is_told(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'driver mismatch' >&2\nexit 9\n", "utf-8")
    program.chmod(0o755)
    found = checks.gpu(lambda _: str(program))
    assert found.level is Level.WARN
    assert "driver mismatch" in found.found


def test_a_gpu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA T4, 15360 MiB'\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(checks, "_torch_version", lambda: checks.NO_TORCH)
    assert checks.gpu(lambda _: str(program)).found == "NVIDIA T4, 15360 MiB, no torch"


def test_a_library_that_cannot_be_loaded_ends_only_its_own_process() -> None:
    assert "kaputt" in checks._python_fails("raise SystemExit('kaputt')")
    assert checks._python_fails("import os; os.abort()") == "ended with -6"
    assert checks._python_fails("pass") == ""


@pytest.mark.network
def test_a_port_that_is_taken_is_told() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        found = checks.sip_port("127.0.0.1", port)
    assert found.level is Level.WARN
    assert found.found == "UDP: Address already in use"
    assert "--port" in found.remedy


@pytest.mark.network
def test_ports_and_the_loopback_work_here() -> None:
    assert checks.sip_port("127.0.0.1", 0).level is Level.OK
    assert checks.rtp_ports("127.0.0.1").level is Level.OK
    assert checks.loopback().level is Level.OK


@pytest.mark.network
def test_an_address_of_another_machine_is_told() -> None:
    assert checks.rtp_ports("192.0.2.77").level is Level.FAIL
    assert checks.sip_port("192.0.2.77", 5060).level is Level.FAIL


@pytest.mark.network
def test_a_server_that_does_not_answer_is_a_failure() -> None:
    found = targets.speech_server("ws://127.0.0.1:9/v1/speech")
    assert found.level is Level.FAIL
    assert "mr-qwen3tts serve" in found.remedy


@pytest.mark.parametrize(("level", "code"), [(Level.OK, 0), (Level.WARN, 0), (Level.FAIL, 1)])
def test_only_a_failure_fails(
    level: Level, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = Check("thing", level, "as found [bold]", "Do this." if level is not Level.OK else "")
    monkeypatch.setattr(doctor, "all_checks", lambda *_: iter([check]))
    assert run(["doctor", "--stt", "none"]) == code
    shown = capsys.readouterr().out
    assert f"{level:<5}thing: as found [bold]\n" in shown
    assert ("→ Do this." in shown) == (level is not Level.OK)


def test_the_report_comes_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = Check("Python", Level.OK, sys.version.split()[0])
    monkeypatch.setattr(doctor, "all_checks", lambda *_: iter([check]))
    assert run(["doctor", "--json", "--stt", "none"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "Python", "level": "ok", "found": check.found, "remedy": ""}
    ]


@pytest.mark.network
def test_every_line_that_is_not_ok_has_a_remedy() -> None:
    for each in doctor.all_checks("127.0.0.1", 0, None, None):
        assert each.found
        assert bool(each.remedy) == (each.level is not Level.OK), each


def test_the_range_of_rtp_ports_is_looked_at_and_not_just_any_port() -> None:
    pair = re.search(r"such as (\d+)", checks.rtp_ports("127.0.0.1").found)
    assert pair is not None
    port = int(pair[1])
    free = checks.rtp_ports("127.0.0.1", (port, port + 1))
    assert free.level is Level.OK
    assert "room for 1" in free.found
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        found = checks.rtp_ports("127.0.0.1", (port, port + 1))
    assert found.level is Level.FAIL
    assert str(port) in found.found


def test_an_address_that_this_machine_does_not_have_is_a_failure_and_no_busy_port() -> None:
    for found in (checks.sip_port("192.0.2.77", 5060), checks.tcp_port("192.0.2.77", 5061, "TLS")):
        assert found.level is Level.FAIL
        assert "listen.host" in found.remedy


def settings_file(folder: Path, pair: Pair, keys: Path) -> Path:
    file = folder / "server.yaml"
    file.write_text(
        f"server: {{access: {{tls_cert: {pair.certificate}, tls_key: {pair.key},"
        f" api_key_file: {keys}}}}}\n",
        "utf-8",
    )
    return file


def found(folder: Path, pair: Pair, keys: Path) -> dict[str, Check]:
    return {each.name: each for each in server_checks(settings_file(folder, pair, keys))}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("a-key", "utf-8")
    file.chmod(0o600)
    return file


def test_files_that_can_be_used_are_named(tmp_path: Path, keys: Path) -> None:
    pair = Authority(tmp_path).sign("live", "127.0.0.1")
    checks = found(tmp_path, pair, keys)
    assert {each.level for each in checks.values()} == {Level.OK}
    assert set(checks) == {"server settings", "server certificate", "API keys"}


def test_files_that_others_may_read_are_told_with_path_and_mode(tmp_path: Path, keys: Path) -> None:
    pair = Authority(tmp_path).sign("live", "127.0.0.1")
    pair.key.chmod(0o640)
    keys.chmod(0o644)
    checks = found(tmp_path, pair, keys)
    assert checks["server certificate"].level is Level.WARN
    assert f"{pair.key} can be read by its group (mode 0640)" in checks["server certificate"].found
    assert checks["API keys"].level is Level.WARN
    assert "everybody on this machine (mode 0644)" in checks["API keys"].found
    pair.key.chmod(0o644)
    refused = found(tmp_path, pair, keys)["server certificate"]
    assert refused.level is Level.FAIL
    assert "chmod 600" in refused.remedy


def test_what_cannot_be_used_is_a_failure(
    tmp_path: Path, keys: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expired = Authority(tmp_path).sign("old", "127.0.0.1", begins=-9 * DAY, ends=-DAY)
    keys.write_text("# none\n", "utf-8")
    checks = found(tmp_path, expired, keys)
    assert "has expired" in checks["server certificate"].found
    assert checks["API keys"].level is Level.FAIL
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("server: {prot: 1}\n", "utf-8")
    assert [each.level for each in server_checks(wrong)] == [Level.FAIL]
    assert [each.level for each in server_checks(tmp_path / "none.yaml")] == [Level.FAIL]
    assert run(["doctor", "--server-config", str(wrong), "--json", "--stt", "none"]) == 1
    assert json.loads(capsys.readouterr().out)[0]["name"] == "server settings"
