"""Splits a graph over devices in small steps, one file each: capability, cost, assign, grow, split, explain."""

from __future__ import annotations

from opweave_partitioner.partition import partition

__all__ = ["partition"]
