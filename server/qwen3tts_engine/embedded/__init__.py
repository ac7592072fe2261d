"""eSpeak NG in worker processes: speech without a GPU or a checkpoint.

Nothing is imported here, so that a worker, which needs the standard library alone, starts quickly.
"""
