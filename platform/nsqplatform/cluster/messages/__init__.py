"""Messages of the cluster: publishing, listing, searching, exporting, masking and tailing them, and acting on them."""
