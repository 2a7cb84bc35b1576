"""`nightcrew bench fairness`: one hour of a crew at a provider's limit, in virtual time, with the gateway and without one.

The world, the same for every policy (numbers marked M were measured at real clients, the others are chosen; see docs/bench.md):

- **Time** is a heap of acts. No wall clock, no asyncio: an hour takes a second or two, and the same seed gives the same figures.
- **The provider** (`simulation.Upstream`) holds one bucket of tokens, full at the start, refilled without a break at `limit / 60` a second,
  of the size of one minute. A request that comes in takes its input when that fits, else it is refused with 429 and `Retry-After`: whole
  seconds until it would fit, at least 1. Its output is taken at its end and may leave the bucket in debt. The response's headers and the
  exact input come with the first byte, 1 to 3 s later; then 60 tokens a second. `remaining` is the level at the moment of the charge,
  rounded to thousands as Anthropic does. The way there and the way back take 0.05 s each.
- **An agent** (`clients.Agent`) sends one turn after another, each for ever until it is served or given up. The mean inputs of the agents
  are spread evenly from 1,000 to 12,000 tokens; one turn's input is lognormal around its agent's mean (sigma 0.4), its output around 500
  (sigma 0.4). Greedy agents pause for 1 s in the mean, interactive ones for 60 s (exponential). A body has 3.0 to 4.2 bytes a token by
  agent, up to 5 % more or less by turn: that is all the gateway knows of a request's size. No prompt is cached.
- **A client** retries like Claude Code (M): a 429 with `Retry-After` up to 60 is waited out (up to 0.2 s longer) ten times; the eleventh
  refusal, or a longer `Retry-After`, fails the turn, and the agent goes on with its next one. It waits for a held request as long as it
  takes, as with the variables that nightcrew gives to its agents (M: to 330 s and more; 295 s without).
  The gateway answers 429 by itself when a request was held for 25 minutes, an interactive one for 4.
- **A policy** (`simulation.AdmissionPolicy`) stands between clients and provider. All policies see the same requests and the same answers.
  The gateway's policy is the real `Traffic`, told by the events that the proxy sends.

A turn's draws belong to its agent, stream and number, never to the moment at which it is made, so every policy meets the same turns.
"""
