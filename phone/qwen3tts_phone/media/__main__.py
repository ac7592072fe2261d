"""Start the media process: ``python -m qwen3tts_phone.media CONTROL NOTICE SETTINGS``."""

import sys

from qwen3tts_phone.media.loop import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
