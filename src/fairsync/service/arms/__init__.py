"""A/B tests: users are divided among arms, each with its part of the promises, its own prices and its own ledger."""
