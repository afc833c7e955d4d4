"""What is run by `make`."""
