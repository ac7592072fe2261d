"""Settings as people write them, read into frozen dataclasses: for the server and for the phone."""
