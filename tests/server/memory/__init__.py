"""Notes, mail, leases and waits as the supervisor keeps them."""
