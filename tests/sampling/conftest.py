"""Who decides in the tests of the choice: PyTorch's operations or our kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from torch import Tensor

from specdec_core.sampling import logit_processors, sampler
from specdec_core.sampling.cpu import ChoiceKernels, load_choice_kernels


@pytest.fixture(scope="module", params=["PyTorch", "kernels"])
def decider(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a test says holds for both; afterwards the process is as before."""
    kernels = load_choice_kernels() if request.param == "kernels" else None
    if request.param == "kernels" and kernels is None:
        pytest.skip("no C compiler")

    def kernels_for(logits: Tensor) -> ChoiceKernels | None:
        return kernels if logits.device.type == "cpu" else None

    with pytest.MonkeyPatch.context() as patch:
        for module in (sampler, logit_processors):
            patch.setattr(module, "choice_kernels_for", kernels_for)
        yield request.param
