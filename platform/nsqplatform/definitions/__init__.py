"""Definitions: the platform's configuration as one file, which is exported, reviewed and imported."""
