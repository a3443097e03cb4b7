"""The version of the distribution and of the runtime file it writes; importable without anything else."""

__version__ = "0.1.0"

CONFIG_VERSION = "1.3"
"""Version of the runtime file ``<name>.yaml``; readers refuse a newer major number."""
