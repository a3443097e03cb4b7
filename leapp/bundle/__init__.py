"""Internal package ``leapp.bundle``; the public names are those of ``leapp``."""
