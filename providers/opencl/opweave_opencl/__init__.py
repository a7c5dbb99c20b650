"""The `opencl` provider (not built yet)."""
