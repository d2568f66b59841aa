"""The sections of a definitions file that are stored in the database."""
