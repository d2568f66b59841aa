"""Publishing, peeking at and tailing messages."""
