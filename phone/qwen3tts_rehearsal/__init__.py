"""Rehearsal of an agent on the telephone: simulated callers, their calls, and verdicts on them.

A scenario (`scenario.py`, YAML) says what a caller does and what is expected of the agent; a call
plays it over a line (`lines.py`); verdicts (`verdicts.py`) are pure functions of what was said and
heard when. The agent may be any: nothing but its telephone address is needed.
"""
