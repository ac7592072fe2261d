"""eSpeak NG in worker processes.

Nothing is imported here: a worker, which needs the standard library alone, starts quickly.
"""
