"""The only modules of the broker that hold a socket."""
