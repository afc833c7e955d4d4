"""The operator's configuration as values: rules, routes, receivers, labels."""
