"""`mr-qwen3tts doctor --call`, the whole command, against real peers: what it says of them."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.peers.baresip_runner import baresip
from tests.peers.kamailio_runner import PASSWORDS, REALM, kamailio

pytestmark = pytest.mark.network

Lines = dict[str, dict[str, str]]


async def doctor(
    folder: Path, config: str, *arguments: str, password: str = ""
) -> tuple[int, Lines]:
    """Its exit code, and what it says, by name."""
    file = folder / "phone.yaml"
    file.write_text("listen: {port: 0}\n" + config, "utf-8")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "qwen3tts_cli.main", "doctor", "--json"),
        *("--config", str(file), "--listen-seconds", "1", *arguments),
        env={"PYTHONPATH": ":".join(sys.path), "ALICE": password},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        shown, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, {each["name"]: each for each in json.loads(shown)}


def failures(lines: Lines) -> dict[str, dict[str, str]]:
    return {name: each for name, each in lines.items() if each["level"] == "fail"}


@pytest.mark.usefixtures("need_baresip")
async def test_a_phone_that_answers_and_speaks_is_well(tmp_path: Path) -> None:
    async with baresip(tmp_path / "bob") as bob:
        code, said = await doctor(tmp_path, "", "--call", bob.uri)
    assert code == 0, said
    assert said["OPTIONS"]["found"].startswith("200")
    assert said["call"]["found"] == "answered with PCMU, not encrypted"
    assert "of it loud" in said["sound in"]["found"]
    # It describes the machine's own address, and sends from 127.0.0.1.
    assert {name for name, each in said.items() if each["level"] != "ok"} <= {"media_elsewhere"}


@pytest.mark.usefixtures("need_baresip")
async def test_one_that_wants_encryption_is_called_with_it(tmp_path: Path) -> None:
    account = "<sip:bob@127.0.0.1>;regint=0;mediaenc=srtp-mand"
    async with baresip(tmp_path / "bob", account=account) as bob:
        code, said = await doctor(tmp_path, "media: {srtp: require}\n", "--call", bob.uri)
        refused, why = await doctor(tmp_path, "media: {srtp: off}\n", "--call", bob.uri)
    assert code == 0, said
    assert said["call"]["found"] == "answered with PCMU, encrypted (AES_CM_128_HMAC_SHA1_80)"
    assert refused == 1
    assert "codec" in failures(why), why
    assert "encrypt" in failures(why)["codec"]["found"] + failures(why)["codec"]["remedy"]


@pytest.mark.usefixtures("need_baresip")
async def test_one_with_other_codecs_is_said_to_have_them(tmp_path: Path) -> None:
    async with baresip(tmp_path / "bob", codecs=("g722.so",)) as bob:
        code, said = await doctor(tmp_path, "media: {codecs: [PCMA]}\n", "--call", bob.uri)
    assert code == 1
    assert "codec" in failures(said), said


@pytest.mark.usefixtures("need_kamailio")
async def test_a_registrar_is_asked_and_its_refusal_said_with_realm_and_user(
    tmp_path: Path,
) -> None:
    async with kamailio(tmp_path / "server") as server:
        config = (
            "accounts:\n"
            f"  - {{name: office, registrar: '{server.registrar}', user: alice,"
            " password_env: ALICE}\n"
        )
        code, said = await doctor(
            tmp_path, config, "--register", "--account", "office", password=PASSWORDS["alice"]
        )
        refused, why = await doctor(
            tmp_path, config, "--register", "--account", "office", password="not this one"
        )
        nobody, unknown = await doctor(
            tmp_path,
            config,
            *("--account", "office", "--call", "nobody-of-this-name"),
            password=PASSWORDS["alice"],
        )
    assert code == 0, said
    assert said["account office"]["found"].startswith("registered at 127.0.0.1")
    assert refused == 1
    (failed,) = failures(why).values()
    assert REALM in failed["found"]
    assert "alice" in failed["found"]
    assert failed["remedy"]
    assert nobody == 1
    assert "wrong_number" in failures(unknown), unknown
