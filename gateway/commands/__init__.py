"""The subcommands of `heliograph`, one file a topic. Each adds its parser and runs with what was parsed."""
