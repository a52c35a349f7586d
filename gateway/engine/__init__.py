"""Engine mode: what several gateways share, on NATS JetStream. Nothing else imports this package but who starts it."""
