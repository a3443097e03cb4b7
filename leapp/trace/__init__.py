"""Internal package ``leapp.trace``; the public names are those of ``leapp``."""
