"""FairSync."""
