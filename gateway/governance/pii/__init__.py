"""Finding personal data in what agents send and get back."""
