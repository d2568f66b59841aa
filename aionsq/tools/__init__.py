"""Command-line tools that use the client, with the flags of NSQ's tools. Each tool's module has a callable ``main``."""
