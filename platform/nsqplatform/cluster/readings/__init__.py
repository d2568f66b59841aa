"""Polls nodes: their responses to /stats, and the figures in them as arrays."""
