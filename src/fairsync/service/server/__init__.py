"""The HTTP server: middleware, codec, micro-batching and routes."""
