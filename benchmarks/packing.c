/* Residues of `bits` bits, at most 16, into bytes and back, the lowest bits first, word by word.
   The packed bytes must have 8 bytes of room behind them. For little-endian machines. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void pack(const uint16_t *values, size_t count, int bits, uint8_t *out) {
    uint64_t held = 0;
    int filled = 0;
    for (size_t i = 0; i < count; i++) {
        held |= (uint64_t)values[i] << filled;
        filled += bits;
        if (filled >= 64) {
            memcpy(out, &held, 8);
            out += 8;
            filled -= 64;
            held = (uint64_t)values[i] >> (bits - filled);
        }
    }
    memcpy(out, &held, 8);
}

void unpack(const uint8_t *in, size_t count, int bits, uint16_t *values) {
    uint64_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t word;
        memcpy(&word, in + i * bits / 8, 8);
        values[i] = (uint16_t)(word >> (i * bits % 8) & mask);
    }
}
