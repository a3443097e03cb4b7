"""Internal package ``leapp.graph``; the public names are those of ``leapp``."""
