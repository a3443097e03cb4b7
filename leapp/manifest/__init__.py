"""Internal package ``leapp.manifest``; the public names are those of ``leapp``."""
