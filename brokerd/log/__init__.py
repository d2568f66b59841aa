"""A topic's messages on disk: segments of wire frames, and beside each the commit records that vouch for them."""
