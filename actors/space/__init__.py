"""Echo spaces: short-lived rooms with values, files and live messages behind one capability."""
