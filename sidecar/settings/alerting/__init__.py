"""Rules, routes, receivers and time intervals."""
