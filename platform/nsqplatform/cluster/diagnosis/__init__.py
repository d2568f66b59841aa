"""The reason for a channel's backlog, in one sentence."""
