"""How not to do it: a batch that is padded on the right where rows committed unequally many.

It stands for the implementations that reproduce plain output on 0 to 3.5 % of prompts: KV stays
where it is, the mask is `ids != pad`, positions are columns. The invariants and the equivalence
check must both catch it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_core.algorithms.padded.cache import PaddedKV

PAD = 0


class RightPaddedKV(PaddedKV):
    """A batch of the token-list fake, whose keys are ids: masks can be read off them."""

    def realign(self, rows: Sequence[int], content_lens: Sequence[int]) -> int:
        """Drop rows that left, fill the others up with padding to one column; nothing moves."""
        self._storage_PBSW = self._storage_PBSW[:, list(rows)]
        self.starts = [self.starts[row] for row in rows]
        self.cached_lens = [self.cached_lens[row] for row in rows]
        end = max(self.ends)
        for row, row_end in enumerate(self.ends):
            self._ids()[row, row_end:end] = PAD
        self.cached_lens = [end - start for start in self.starts]
        return 0

    def positions(self, num_columns: int) -> Tensor:
        """Columns count from a row's start whether they hold content or not; pad ids are hidden."""
        position_BS = super().positions(num_columns)
        is_pad_BS = self._ids()[:, :num_columns] == PAD
        is_past_BS = torch.arange(num_columns) < torch.tensor(self.ends).unsqueeze(1)
        return position_BS.masked_fill(is_pad_BS & is_past_BS, -1)

    def _ids(self) -> Tensor:
        return self.pools(0)[0].view(self.num_rows, self.num_columns)
