"""Command-line tools that use the client, with the flags of NSQ's tools. Each module's ``main`` is its Tool."""
