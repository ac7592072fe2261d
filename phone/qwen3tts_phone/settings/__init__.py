"""Settings of a phone, its records and its settings file."""
