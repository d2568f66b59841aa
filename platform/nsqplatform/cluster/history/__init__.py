"""The last hour of every topic, channel and node."""
