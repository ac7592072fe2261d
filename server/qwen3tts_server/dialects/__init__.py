"""The protocols of other servers, served to their clients unchanged."""
