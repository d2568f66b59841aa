"""The state of the whole cluster at one moment: its tables, how they are computed, and what changes between two."""
