"""What a gateway tells of itself: log lines, traces, metrics."""
