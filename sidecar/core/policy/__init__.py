"""What the operator decided, as values: rules, routes, receivers, labels."""
