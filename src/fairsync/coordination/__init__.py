"""One promise, many front ends: who is handed which requests, what comes back, and where that is written."""
