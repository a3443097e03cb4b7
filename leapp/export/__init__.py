"""Internal package ``leapp.export``; the public names are those of ``leapp``."""
