"""Command-line tools on top of the client, with the flags of NSQ's own. Each module's ``main`` is its Tool."""
