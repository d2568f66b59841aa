"""The mirrored node: a primary streams its file actions to a follower, which takes over with the same files.

The modules have no sockets, files or clocks: bytes, ticks and the arbiter's answers are passed to them, and what they
decide is taken from them. Why it is built this way: docs/architecture.md, "The mirrored node".
"""
