"""The reference: every operator in NumPy, slow and right. It checks devices, folds constants, and runs the long tail."""

from opweave.reference.evaluator import Kernel, evaluate, evaluate_graph, prepare, supports

__all__ = ["Kernel", "evaluate", "evaluate_graph", "prepare", "supports"]
