"""Settings of the server and the phone, read into frozen dataclasses."""
