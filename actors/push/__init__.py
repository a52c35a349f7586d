"""Who has asked to be notified: push subscriptions of spaces and of projects, and what became of sending to them."""
