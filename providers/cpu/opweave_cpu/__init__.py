"""The `cpu` provider: a C++ core that supports everything."""
