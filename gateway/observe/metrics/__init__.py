"""What a gateway tells Prometheus of itself."""
