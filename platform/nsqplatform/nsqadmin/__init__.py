"""nsqadmin's HTTP API, flags and command. The pages are the web app's."""
