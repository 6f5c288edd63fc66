"""What every step imports: a rehearsal imports it once, for all of them."""

import torch.profiler
import transformers.models.qwen3.modeling_qwen3
import transformers.models.qwen3_moe.modeling_qwen3_moe

import specdec_core.engine
import specdec_core.models.loading  # noqa: F401
