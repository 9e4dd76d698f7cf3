"""The format of an agent's output files: what it writes and the command line reads. Python 3.9.

<agent>.log   the bytes, as they came (progress bars that redraw themselves are thinned out)
<agent>.idx   32 bytes a piece: offset, time, length, trial number, attempt, stream
"""

from __future__ import annotations

import struct

PIECE = struct.Struct("<QdIIIB3x")
STDOUT, STDERR, OURS = 1, 2, 3  # OURS: a word of Windlass about the trial
