"""What every step imports: a rehearsal imports it once, for all of them."""

import specdec_core.engine
import specdec_core.models.loading  # noqa: F401
