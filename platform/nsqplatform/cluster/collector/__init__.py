"""Polls every node once a second, and keeps snapshots, history and the samples of the archive."""
