"""What `nightcrew web` is made of: `serving` is the process, `record` its file, `wiring` gives the pages what they read by and act by."""
