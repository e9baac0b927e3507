"""One promise, many front ends: leases, the coordinator that grants them, and the front ends that search."""
