"""NSQ's protocol and conventions as values: no socket, clock or disk is touched here.

Every other part of the project may import this package; it imports none of them.
"""
