"""Polls every node once a second and keeps what it reads: snapshots, history and the archive's samples."""
