"""The command ``mr-qwen3tts``, one file a subcommand."""
