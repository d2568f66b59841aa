"""Migrations of the tasks."""
