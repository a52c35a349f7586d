"""The kept audit."""
