"""Operators that ONNX dropped (experimental ones of operator set 1), and those of ai.onnx.ml that changed."""

from __future__ import annotations

import numpy as np

from opweave.dtypes import DType
from opweave.read.op import Op
from opweave.read.upgrade import DONE, DROPPED, KeepForm, Rules

rules = Rules()
ml_rules = Rules("ai.onnx.ml")
RULES = (rules, ml_rules)


@rules.to(DROPPED, "Affine")
def affine(op: Op) -> bool:
    """alpha * x + beta."""
    x = op.input(0)
    scaled = op.emitter.emit("Mul", [x, op.emitter.scalar_like(op.take("alpha", 1.0), x)])
    op.emitter.emit("Add", [scaled, op.emitter.scalar_like(op.take("beta", 0.0), x)], out=op.output(0))
    return DONE


@rules.to(DROPPED, "Scale")
def scale(op: Op) -> bool:
    """scale * x."""
    x = op.input(0)
    op.emitter.emit("Mul", [x, op.emitter.scalar_like(op.take("scale", 1.0), x)], out=op.output(0))
    return DONE


@rules.to(DROPPED, "ScaledTanh")
def scaled_tanh(op: Op) -> bool:
    """alpha * tanh(beta * x)."""
    x = op.input(0)
    inner = op.emitter.emit("Tanh", [op.emitter.emit("Mul", [x, op.emitter.scalar_like(op.take("beta", 1.0), x)])])
    op.emitter.emit("Mul", [inner, op.emitter.scalar_like(op.take("alpha", 1.0), x)], out=op.output(0))
    return DONE


@rules.to(DROPPED, "ParametricSoftplus")
def parametric_softplus(op: Op) -> bool:
    """alpha * ln(exp(beta * x) + 1)."""
    x = op.input(0)
    inner = op.emitter.emit("Softplus", [op.emitter.emit("Mul", [x, op.emitter.scalar_like(op.take("beta", 1.0), x)])])
    op.emitter.emit("Mul", [inner, op.emitter.scalar_like(op.take("alpha", 1.0), x)], out=op.output(0))
    return DONE


@rules.to(DROPPED, "ImageScaler")
def image_scaler(op: Op) -> bool:
    """scale * x + bias of each channel."""
    x, bias = op.input(0), np.array(op.take("bias", [0.0]), np.float32).reshape(-1, 1, 1)
    scaled = op.emitter.emit("Mul", [x, op.emitter.scalar_like(op.take("scale", 1.0), x)])
    op.emitter.emit("Add", [scaled, op.emitter.tensor_like(bias, x, "bias")], out=op.output(0))
    return DONE


@ml_rules.to(2, "LabelEncoder")
def label_encoder(op: Op) -> None:
    """One list of classes served both directions; which one is told by the type of the input."""
    x = op.input(0)
    if x is None or x.tensor is None:
        raise KeepForm
    classes = op.take("classes_strings", [])
    to_numbers = x.tensor.dtype is DType.STRING
    op.attributes["keys_strings" if to_numbers else "values_strings"] = classes
    op.attributes["values_int64s" if to_numbers else "keys_int64s"] = list(range(len(classes)))
    op.attributes.setdefault("default_int64", -1)
    op.attributes.setdefault("default_string", "_Unused")
