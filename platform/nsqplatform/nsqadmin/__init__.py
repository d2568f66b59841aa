"""nsqadmin's place, taken: its HTTP API, its flags, its command. The pages are the web app's."""
