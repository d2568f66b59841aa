"""The journal of changes to topics and channels, from which a node recovers after a crash."""
