"""Checks of a call's parts before a phone rings: words, language model, recogniser, voice."""
