"""A shop that sells three things."""
