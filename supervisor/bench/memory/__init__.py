"""`nightcrew bench memory`: what the memory of a project costs, piece by piece. Each file measures one, by `measure`."""
