"""What a person sees: read models of the ledger and their text. They never decide, and import only the standard library."""
