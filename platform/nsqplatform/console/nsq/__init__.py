"""The ``nsq`` command: one name for every process and tool of the project."""
