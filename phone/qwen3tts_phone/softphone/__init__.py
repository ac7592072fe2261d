"""Telephone in the browser: a page that calls the voice, an agent, or a SIP address."""
