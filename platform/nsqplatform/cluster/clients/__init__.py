"""The clients that are connected to channels."""
