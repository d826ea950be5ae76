"""Parts of both aggregation protocols: the wire format, identities and masks.

`skellam.secagg` and `skellam.twoserver` build on these and never see each other.
"""
