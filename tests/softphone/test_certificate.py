from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from qwen3tts_phone.errors import BadCertificate
from qwen3tts_phone.softphone.certificate import (
    DAYS,
    FILE,
    RENEW_DAYS,
    self_signed_certificate,
    state_folder,
    user_certificate,
)
from tests.conftest import require_package

require_package("cryptography", "pip install 'mr_qwen3tts[webrtc]'")

NOW = datetime.now(UTC)
HOSTS = ["localhost", "127.0.0.1", "192.0.2.7", "::1"]


def test_one_is_made_that_only_its_owner_can_read_and_a_server_can_show(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    made = self_signed_certificate(HOSTS, folder, NOW)
    made.context()
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(made.fingerprint.split(":")) == 32
    assert [each.name for each in folder.iterdir()] == [FILE]
    assert not made.own


def test_it_is_kept_while_it_is_good(tmp_path: Path) -> None:
    first = self_signed_certificate(HOSTS, tmp_path, NOW)
    assert self_signed_certificate(HOSTS, tmp_path, NOW).fingerprint == first.fingerprint
    assert self_signed_certificate(HOSTS[:2], tmp_path, NOW).fingerprint == first.fingerprint
    shortly = NOW + timedelta(DAYS - RENEW_DAYS - 1)
    assert self_signed_certificate(HOSTS, tmp_path, shortly).fingerprint == first.fingerprint


def test_it_is_made_anew_before_it_ends_and_for_other_hosts(tmp_path: Path) -> None:
    first = self_signed_certificate(HOSTS, tmp_path, NOW)
    ending = NOW + timedelta(DAYS - RENEW_DAYS + 1)
    second = self_signed_certificate(HOSTS, tmp_path, ending)
    assert second.fingerprint != first.fingerprint
    third = self_signed_certificate([*HOSTS, "box.local"], tmp_path, ending)
    assert third.fingerprint != second.fingerprint
    assert self_signed_certificate(HOSTS, tmp_path, ending).fingerprint == third.fingerprint
    assert (
        self_signed_certificate(HOSTS, tmp_path, NOW).fingerprint != third.fingerprint
    )  # not valid yet


@pytest.mark.parametrize("damage", ["garbage", "readable", "no key", "empty"])
def test_what_is_damaged_or_may_be_known_to_others_is_made_anew(
    tmp_path: Path, damage: str
) -> None:
    first = self_signed_certificate(HOSTS, tmp_path, NOW)
    if damage == "readable":
        first.path.chmod(0o644)
    elif damage == "no key":
        text = first.path.read_text("ascii")
        first.path.write_text(text[text.index("-----BEGIN CERTIFICATE") :], "ascii")
    else:
        first.path.write_text("" if damage == "empty" else "-----BEGIN CERTIFICATE-----\nMII")
    second = self_signed_certificate(HOSTS, tmp_path, NOW)
    second.context()
    assert second.fingerprint != first.fingerprint
    assert stat.S_IMODE(second.path.stat().st_mode) == 0o600


def test_ones_own_is_taken_as_it_is_or_refused(tmp_path: Path) -> None:
    made = self_signed_certificate(HOSTS, tmp_path, NOW)
    own = user_certificate(made.path, None)
    assert own.own
    assert own.fingerprint == made.fingerprint
    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    with pytest.raises(BadCertificate, match=r"bad\.pem"):
        user_certificate(bad, None)
    with pytest.raises(BadCertificate, match="missing"):
        user_certificate(tmp_path / "missing.pem", None)


@pytest.mark.parametrize(("mode", "who"), [(0o640, "its group"), (0o644, "everybody")])
def test_a_key_of_ones_own_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, who: str
) -> None:
    made = self_signed_certificate(["localhost"], tmp_path)
    user_certificate(made.path, None)
    assert "can be read" not in caplog.text
    made.path.chmod(mode)
    user_certificate(made.path, None)
    assert f"{made.path} can be read by {who}" in caplog.text


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadCertificate, match="file: ") as told:
        self_signed_certificate(HOSTS, tmp_path / "file", NOW)
    assert "XDG_STATE_HOME" in told.value.remedy


def test_one_that_has_ended_is_told_with_its_day(tmp_path: Path) -> None:
    then = NOW - timedelta(DAYS + 3)
    old = self_signed_certificate(HOSTS, tmp_path, then)
    expired = f"expired on {then + timedelta(DAYS):%Y-%m-%d}"
    with pytest.raises(BadCertificate, match=expired) as told:
        user_certificate(old.path, None)
    assert "Renew" in told.value.remedy


def test_the_folder_follows_the_users_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/state")
    assert state_folder() == Path("/srv/state/mr-qwen3tts")
    for none in ("", "not/absolute"):
        monkeypatch.setenv("XDG_STATE_HOME", none)
        assert state_folder() == Path(os.path.expanduser("~/.local/state/mr-qwen3tts"))
