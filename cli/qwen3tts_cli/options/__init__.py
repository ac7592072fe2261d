"""Options shared by subcommands."""
