"""Calls: events, control, media, transfers, DTMF, and the public `Call` and `PhoneCall`."""
