"""The ``nsq`` command: it finds a subcommand and calls it. Each of the installed distributions has some."""
