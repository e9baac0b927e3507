"""The service: promises kept, day after day."""
