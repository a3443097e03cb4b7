"""Internal package ``leapp.graph.passes``; the public names are those of ``leapp``."""
