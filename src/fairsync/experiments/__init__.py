"""Experiments: the paper's tables and figures and further ones, one module each, and the report of a reproduction."""
