"""The service over HTTP: what calls pass, how they are read, gathered and answered."""
