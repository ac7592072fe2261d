"""Detection of the caller's speech: VAD, echo, endpointing, barge-in, and turns with their text.

It stands below calls, which offer it (`Call.hear`, `Call.ask`, barge-in on a page); recognisers
are known by their protocol alone.
"""
