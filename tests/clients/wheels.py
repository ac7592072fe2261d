"""Build the wheels of our plugins, and import them from the wheels beside the real frameworks.

Run as a module (``python -m tests.clients.wheels``), with the real clients in ``.clients``; the
wheels are left in ``dist/``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.clients.install import PYTHON

ROOT = Path(__file__).resolve().parent.parent.parent
DIST = ROOT / "dist"
HELD = {
    "integrations/pipecat": "pipecat_qwen3tts/",
    "integrations/livekit": "livekit/plugins/qwen3tts/",
}
"""What each wheel holds, and nothing beside it: the folders above are shared with others."""
USE = (
    "import livekit.plugins.qwen3tts as plugin, livekit.plugins.openai, pipecat_qwen3tts; "
    "from livekit.agents import Plugin; "
    "assert any(each.title == plugin.__name__ for each in Plugin.registered_plugins); "
    "plugin.TTS(); pipecat_qwen3tts.Qwen3TTSService()"
)


def run(*command: str | Path, **options: str) -> None:
    subprocess.run([str(part) for part in command], check=True, env=options or None)


def built(project: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", DIST, project)
    return max(DIST.glob("*.whl"), key=lambda path: path.stat().st_mtime)


def main() -> None:
    wheels = [built(ROOT)]
    for project, folder in HELD.items():
        wheel = built(ROOT / project)
        files = [name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name]
        strange = [name for name in files if not name.startswith(folder)]
        assert not strange, f"{wheel.name} holds {strange}"
        assert f"{folder}py.typed" in files, f"{wheel.name} is not typed"
        wheels.append(wheel)
    with tempfile.TemporaryDirectory() as name:
        pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run(*pip, "--python", PYTHON, "install", "--no-deps", "--target", name, *wheels)
        run(PYTHON, "-c", USE, PYTHONPATH=name, HOME=name)
    print(", ".join(wheel.name for wheel in wheels[1:]), "built, and imported from the wheels")


if __name__ == "__main__":
    main()
