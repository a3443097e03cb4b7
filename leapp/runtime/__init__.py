"""Internal package ``leapp.runtime``; the public names are those of ``leapp``."""
