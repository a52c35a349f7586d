"""The audit that lasts: lines of the audit, kept in the data folder for as long as settings say, and found again."""
