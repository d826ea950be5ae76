"""Changes of bytes, as a hostile sender or a bad line makes them."""


def flipped(data, rng):
    """Change some bits."""
    octets = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        if octets:
            octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
    return bytes(octets)


def cut(data, rng):
    return data[: rng.randrange(len(data) + 1)]


def grown(data, rng):
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice([1, 2, 4, 40])) + data[at:]


def overwritten(data, rng):
    at, size = rng.randrange(len(data) + 1), rng.choice([1, 2, 4, 8, 32])
    return data[:at] + rng.choice([bytes(size), b"\xff" * size]) + data[at + size :]


BYTES = (flipped, cut, grown, overwritten)
