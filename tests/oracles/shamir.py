"""Shamir's scheme over the integers modulo 65537, one limb at a time, as in the textbook."""

PRIME = 65537


def evaluate(coefficients: list[int], x: int) -> int:
    return sum(c * x**j for j, c in enumerate(coefficients)) % PRIME


def interpolate_at_zero(points: list[tuple[int, int]]) -> int:
    total = 0
    for x, y in points:
        numerator = denominator = 1
        for other, _ in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        total += y * numerator * pow(denominator, -1, PRIME)
    return total % PRIME
