"""Data to retrieve from."""

from fairsync.data.synthetic import Synthetic, synthetic

__all__ = ["Synthetic", "synthetic"]
