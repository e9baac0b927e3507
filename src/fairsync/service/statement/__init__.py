"""Statements for providers, as files: HTML to read and print, CSV to compute with."""

from fairsync.service.statement.csv_file import statement_csv
from fairsync.service.statement.html_page import statement_html

__all__ = ["statement_csv", "statement_html"]
