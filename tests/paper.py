"""The paper's definitions as naive loops: the oracle for every fast path.

Nothing here is fast or clever; each function follows the printed equation or algorithm it names, in the
reading that `docs/paper-to-code.md` gives.
"""

import numpy as np
