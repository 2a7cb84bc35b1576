"""The worker of a map: it asks the supervisor for a shard of items, works on them, writes down what came of each, and asks again."""
