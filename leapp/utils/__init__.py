"""Import paths of earlier releases; new code takes these names from ``leapp`` itself."""
