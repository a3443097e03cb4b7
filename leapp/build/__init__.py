"""Internal package ``leapp.build``; the public names are those of ``leapp``."""
