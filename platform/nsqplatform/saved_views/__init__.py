"""Saved views: addresses of pages under a name, private or shared."""
