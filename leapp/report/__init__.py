"""Internal package ``leapp.report``; the public names are those of ``leapp``."""
