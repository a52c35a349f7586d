"""One pipeline for every call, whichever door it came through: admission, the call, the audit, the catalogue."""
