"""`nightcrew mem`: its subverbs, and the door by which they, `mail` and `lease` ask: for a person, or for the agent that runs them."""
