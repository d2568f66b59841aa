"""Code that our daemons and command-line tools share: settings, logs, sockets, HTTP server, metrics and profiling.

It uses the protocol (:mod:`nsqwire`) and is independent of the programs that use it.
"""
