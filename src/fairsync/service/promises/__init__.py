"""Who keeps the promises: plans by the clock, answers requests, and says where everything stands."""
