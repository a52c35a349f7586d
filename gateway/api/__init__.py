"""The remaining HTTP routes, a module for each thing that they serve; and what all of them are together."""
