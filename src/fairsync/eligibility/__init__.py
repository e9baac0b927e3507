"""Eligibility: which items a request may get, and what can be counted on in the requests to come."""
