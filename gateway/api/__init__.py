"""The remaining HTTP routes: tools over plain HTTP, schemas, devices, operators, metrics."""
