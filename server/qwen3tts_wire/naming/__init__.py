"""Names of voices and languages, for people."""
