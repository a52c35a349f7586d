"""What an agent may do and say: so far, personal data found in what it sends and gets."""
