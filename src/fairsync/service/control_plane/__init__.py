"""The control plane: prices and counts for searches that are made elsewhere."""
