"""``leapp init``: what a repository needs to build its pipelines, written after a look at it."""
