"""The leadership machine: from what was read of a store to transitions, and to how much of it was not observed."""
