"""Files that a subcommand writes."""
