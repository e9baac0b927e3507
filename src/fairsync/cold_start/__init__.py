"""Cold start: answers to requests about whose user nothing is known, and lists that requests begin with."""
