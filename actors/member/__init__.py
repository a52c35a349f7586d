"""Members of tenants: people who run agents, invited by operators, with passkeys and grants of their own."""
