"""Speech without a GPU or a checkpoint: eSpeak NG in worker processes.

``engine.EmbeddedEngine`` is the way in. Nothing is imported here, so that a worker, which needs
the standard library alone, starts quickly.
"""
