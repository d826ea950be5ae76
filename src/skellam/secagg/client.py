"""A client's part: advertise, share, mask, agree, unmask, done.

Each phase has one method, ``step``, that takes what the server sent and returns the next phase with
the bytes to send. A client opens, for each peer, either shares of its self mask or shares of its
mask key, never both, and only for a set of survivors that enough others signed.

::

    share, data, history = Advertise(party).step(history=history, entropy=entropy)
    mask, data = share.step(roll, entropy=entropy)
    vector = ...  # noise for mask.participants shares, removable by mask.noise_seeds
    agree, data = mask.step(delivery, vector)
    unmask, data = agree.step(survivors)
    done, data = unmask.step(agreed, entropy=entropy)

Where each message meets a new process, keep ``mask.to_bytes()`` *before* ``data`` is sent and go on
with ``Mask.from_bytes(kept, party)``; when a step raises, delete what was kept.
"""

from __future__ import annotations

from skellam.secagg.joining import Advertise, Share
from skellam.secagg.masking import Mask
from skellam.secagg.opening import Agree, Done, Unmask

__all__ = ["Advertise", "Agree", "Done", "Mask", "Share", "Unmask"]
