"""What `nightcrew top` and `nightcrew web` look at and do: reading by the ledger and the supervisor, acts as the verbs do them."""
