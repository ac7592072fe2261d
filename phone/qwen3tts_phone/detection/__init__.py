"""Listening: when the caller speaks, cuts in, pauses and has finished.

settings.py   when sound counts as speech, and a pause as the end of a turn
activity.py   voice activity detectors, and how one is chosen by name
core.py       frames in, decisions out; pure, time is an argument
echo.py       our own voice coming back from the line does not count
turn_end.py   the plug-in point for a smarter end of a turn
listening.py  joins a call, the core, a recogniser and the interruption
"""
