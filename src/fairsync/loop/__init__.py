"""The loop: prices for a batch of requests, search and guard for it, counts back, and now and then a policy step."""
