"""Speech detection: VAD, echo, endpointing, barge-in, turns and their text.

It stands below calls; recognisers are known by their protocol alone.
"""
