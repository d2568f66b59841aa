"""The network interfaces: the only modules of the broker that use sockets."""
