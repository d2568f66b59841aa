"""The broker, which takes the place of nsqd."""
