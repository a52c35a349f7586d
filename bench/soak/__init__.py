"""A gateway under a mixed load for hours: what grows is named."""
