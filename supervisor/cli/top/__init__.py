"""What `nightcrew top` looks at and does: reading by the ledger and the supervisor, acts as the verbs do them."""
