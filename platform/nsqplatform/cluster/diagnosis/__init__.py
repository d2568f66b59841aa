"""The cause of a channel's backlog, in one sentence."""
