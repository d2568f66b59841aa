"""The broker: a replacement for nsqd."""
