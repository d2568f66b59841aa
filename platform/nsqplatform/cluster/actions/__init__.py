"""Operators' actions on the cluster."""
