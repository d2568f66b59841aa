"""The broker: what nsqd is in NSQ."""
