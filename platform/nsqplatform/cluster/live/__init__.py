"""The websocket that keeps open browsers up to date."""
