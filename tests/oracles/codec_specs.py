"""A small spec that tests change where they need to."""

from dataclasses import replace

from skellam.codec import Codec, CodecSpec, NoNoise, Unbiased


def spec_of(**changes):
    settings = {
        "dimension": 1000,
        "clip": 1.0,
        "scale": 500.0,
        "bits": 16,
        "rounding": Unbiased(),
        "noise": NoNoise(),
        "padded_dim": 1024,
    }
    return CodecSpec(**(settings | changes))


def codec_of(public_seed=bytes(32), **changes):
    return Codec(spec_of(**changes), public_seed=public_seed)


def as_if_enough(codec, message):
    """One message that says it is the sum of as many as the codec decodes."""
    return replace(message, messages=max(codec.spec.shares, 1))
