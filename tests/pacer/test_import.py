from __future__ import annotations

import subprocess
import sys


def test_the_pure_parts_need_neither_asyncio_nor_numpy() -> None:
    code = (
        "import sys, qwen3tts_pacer.core, qwen3tts_pacer.policy, qwen3tts_pacer.timeline\n"
        "sys.exit(', '.join({'asyncio', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
