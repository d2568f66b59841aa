"""The ``nsq`` command, which finds a subcommand and calls it. Each installed distribution adds its subcommands."""
