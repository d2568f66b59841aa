"""A topic's messages on disk: segments of wire frames, and an index of commit records for each."""
