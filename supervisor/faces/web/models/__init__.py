"""What the pages of the web page show, as small JSON: each a pure function of what the ledger, the account and the memory have, of no more
rows than a page has room for. What is older has a place to go on from (`before`), which the page gives back."""
