"""Exact numerics without the search for their classes: as narrow as a machine might have them."""

from __future__ import annotations

from specdec_core.batch_invariance.linear import ExactLinear, Linear
from specdec_core.batch_invariance.size_classes import ClassTable, SizeSet
from specdec_core.layers.attention.metadata import AttentionShape, SizeRange
from specdec_core.worker.model_runner import ModelRunner

ROWS = SizeSet((SizeRange(3, 8),))
ATTENTION = AttentionShape(queries=SizeRange(2, 8), key_lens=(64, 128))


def keep_to_classes(model: ModelRunner, attention: AttentionShape = ATTENTION) -> None:
    """Few rows are padded and many become several calls, in linears and in attention."""
    linears = [item for item in model.module.named_modules() if isinstance(item[1], Linear)]
    for name, linear in linears:
        assert isinstance(linear, Linear)
        model.module.set_submodule(name, ExactLinear(linear, ROWS))
    model.class_table = ClassTable(linears=(("any", ROWS),), attention=attention)
