"""The `cuda` provider (not built yet)."""
