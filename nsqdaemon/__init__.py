"""What our daemons and command-line tools share: settings, logs, sockets, the HTTP server, metrics and profiling.

It knows the protocol (:mod:`nsqwire`) and none of the programs that use it.
"""
