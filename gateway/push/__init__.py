"""Web Push: browsers that are closed are notified, through the push services of their vendors."""
