"""NSQ's protocol and conventions as values, without sockets, clocks or files.

Every other part of the project may import this package; it imports none of them.
"""
