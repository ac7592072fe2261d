"""Settings of server and phone, as frozen dataclasses."""
