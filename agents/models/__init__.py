"""Ask a model: the API of Anthropic, a conversation with tools, and their settings."""
