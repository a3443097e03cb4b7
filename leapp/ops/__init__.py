"""Internal package ``leapp.ops``; the public names are those of ``leapp``."""
