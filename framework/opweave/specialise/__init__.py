"""Specialising: types forward through a graph, and whatever they make constant folded away."""

from opweave.specialise.forward import specialise

__all__ = ["specialise"]
