"""Reading a YAML or JSON file strictly: positions, known keys, typed values, one clear error."""
