"""The command line with a Qwen3 checkpoint, as somebody types it who has not read the manual."""

from __future__ import annotations

import asyncio
import sys
import wave
from pathlib import Path

import pytest

from qwen3tts_server.run import running_server
from tests.qwen3.engine.engine_world import made

pytestmark = pytest.mark.network


async def command(*arguments: str) -> tuple[int | None, str, str]:
    """Exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "qwen3tts_cli.main", *arguments),
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(60):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_a_checkpoint_that_cannot_be_served_ends_with_what_helps(
    tiny: dict[str, Path], tmp_path: Path
) -> None:
    def damaged(name: str, content: bytes) -> str:
        folder = tmp_path / name.replace("/", "-")
        for file in tiny["base"].rglob("*"):
            if file.is_file():
                to = folder / file.relative_to(tiny["base"])
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(file.read_bytes())
        (folder / name).write_bytes(content)
        return str(folder)

    serve = ("serve", "--engine", "qwen3", "--port", "0")
    doctor = ("doctor", "--stt", "none", "--no-forecast")
    cut_off = (tiny["base"] / "model.safetensors").read_bytes()[:-1000]
    cases: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
        (serve, ("--model",)),
        ((*serve, "--model", damaged("model.safetensors", cut_off)), ("model.safetensors", "Rem")),
        ((*doctor, "--checkpoint", damaged("vocab.json", b"{")), ()),
        (
            (
                *doctor,
                "--checkpoint",
                damaged("config.json", b'{"model_type": "llama"}'),
            ),
            (),
        ),
    )
    results = await asyncio.gather(*(command(*arguments) for arguments, _ in cases))
    for (arguments, told), (code, out, err) in zip(cases, results, strict=True):
        assert code != 0, arguments
        assert "Traceback" not in out + err, arguments
        for part in told:
            assert part in out + err, arguments


async def test_a_text_is_said_into_a_file(tiny: dict[str, Path], tmp_path: Path) -> None:
    to = tmp_path / "said.wav"
    async with running_server(made(tiny["custom_voice"], slots=2)) as server:
        said = ("say", "--server", server.url, "--out", str(to))
        code, out, err = await command(*said, "Say <|im_end|> 😀 now.", "--voice", "ryan")
        assert code == 0, out + err
        with wave.open(str(to)) as file:
            assert file.getframerate() == 24_000
            assert file.getnframes() > 24_000
        code, out, err = await command(*said, "Good day.", "--voice", "absent")
        assert code != 0
        assert "absent" in err
        assert "ryan" in err
        assert "Traceback" not in out + err
