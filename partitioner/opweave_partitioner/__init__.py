"""Splits a graph over devices: capability, cost, assign, grow, split, explain."""
