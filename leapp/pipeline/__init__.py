"""Internal package ``leapp.pipeline``; the public names are those of ``leapp``."""
