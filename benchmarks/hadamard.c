/* The Walsh-Hadamard transform as C does it best: eight floats in a register, radix 8 in the cache. */
#include <stddef.h>
#define BUTTERFLY(a, b) do { float s = a + b, t = a - b; a = s; b = t; } while (0)
static void level8(float *restrict x, size_t n, size_t h) {
    for (size_t base = 0; base < n; base += 8 * h) {
        float *restrict y = x + base;
#pragma GCC ivdep
        for (size_t j = 0; j < h; j++) {
            float a = y[j], b = y[j + h], c = y[j + 2 * h], d = y[j + 3 * h];
            float e = y[j + 4 * h], f = y[j + 5 * h], g = y[j + 6 * h], k = y[j + 7 * h];
            BUTTERFLY(a, b); BUTTERFLY(c, d); BUTTERFLY(e, f); BUTTERFLY(g, k);
            BUTTERFLY(a, c); BUTTERFLY(b, d); BUTTERFLY(e, g); BUTTERFLY(f, k);
            BUTTERFLY(a, e); BUTTERFLY(b, f); BUTTERFLY(c, g); BUTTERFLY(d, k);
            y[j] = a; y[j + h] = b; y[j + 2 * h] = c; y[j + 3 * h] = d;
            y[j + 4 * h] = e; y[j + 5 * h] = f; y[j + 6 * h] = g; y[j + 7 * h] = k;
        }
    }
}
static void level4(float *restrict x, size_t n, size_t h) {
    for (size_t base = 0; base < n; base += 4 * h) {
        float *restrict y = x + base;
#pragma GCC ivdep
        for (size_t j = 0; j < h; j++) {
            float a = y[j], b = y[j + h], c = y[j + 2 * h], d = y[j + 3 * h];
            BUTTERFLY(a, b); BUTTERFLY(c, d); BUTTERFLY(a, c); BUTTERFLY(b, d);
            y[j] = a; y[j + h] = b; y[j + 2 * h] = c; y[j + 3 * h] = d;
        }
    }
}
static void level2(float *restrict x, size_t n, size_t h) {
    for (size_t base = 0; base < n; base += 2 * h)
#pragma GCC ivdep
        for (size_t j = base; j < base + h; j++) BUTTERFLY(x[j], x[j + h]);
}
typedef float v8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
static void lowest(float *x, size_t n) {
    const v8 s1 = {1, -1, 1, -1, 1, -1, 1, -1}, s2 = {1, 1, -1, -1, 1, 1, -1, -1}, s4 = {1, 1, 1, 1, -1, -1, -1, -1};
    const i8 p1 = {1, 0, 3, 2, 5, 4, 7, 6}, p2 = {2, 3, 0, 1, 6, 7, 4, 5}, p4 = {4, 5, 6, 7, 0, 1, 2, 3};
    for (size_t i = 0; i < n; i += 8) {
        v8 y; __builtin_memcpy(&y, x + i, 32);
        y = y * s1 + __builtin_shuffle(y, p1);
        y = y * s2 + __builtin_shuffle(y, p2);
        y = y * s4 + __builtin_shuffle(y, p4);
        __builtin_memcpy(x + i, &y, 32);
    }
}
static void finish(float *x, size_t n, size_t h) {
    for (; 8 * h <= n; h *= 8) level8(x, n, h);
    if (4 * h == n) level4(x, n, h);
    if (2 * h == n) level2(x, n, h);
}
void hadamard(float *x, size_t n) {
    size_t block = n < 4096 ? n : 4096;
    size_t mid = n < 262144 ? n : 262144;
    for (size_t m = 0; m < n; m += mid) {
        for (size_t b = m; b < m + mid; b += block) { lowest(x + b, block); finish(x + b, block, 8); }
        finish(x + m, mid, block);
    }
    finish(x, n, mid);
}
