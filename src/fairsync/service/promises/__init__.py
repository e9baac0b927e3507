"""The promise service: promises that end by the clock, planned, kept, counted and reported, without any HTTP."""
