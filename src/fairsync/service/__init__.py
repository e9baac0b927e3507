"""The service: retrieval over HTTP, with promises over windows of time."""
