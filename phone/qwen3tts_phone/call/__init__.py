"""Calls: events, control, media, transfers, DTMF, `Call` and `PhoneCall`."""
