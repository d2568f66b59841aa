"""What happened to topics and channels, written as it happens, so that a crash forgets none of it."""
