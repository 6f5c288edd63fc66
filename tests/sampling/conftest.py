"""Who decides in the tests of the choice: PyTorch's operations or our kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from specdec_core.sampling import cpu as native_choice


@pytest.fixture(scope="module", params=["PyTorch", "kernels"])
def decider(request: pytest.FixtureRequest) -> Iterator[str]:
    """What a test says holds for both; afterwards the process is as before."""
    kernels = native_choice.load_choice_kernels() if request.param == "kernels" else None
    if request.param == "kernels" and kernels is None:
        pytest.skip("no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_choice, "choice_kernels", lambda: kernels)
        yield request.param
