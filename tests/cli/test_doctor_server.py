"""What ``doctor --server-config`` says of a speech server's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qwen3tts_cli.doctor.checks import Check, Level
from qwen3tts_cli.doctor.targets import server_checks
from qwen3tts_cli.main import run
from tests.sip.certificates import DAY, Authority, Pair


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
