/* CRC-32, the same as zlib.crc32: importing zlib costs as much as checking 300 files. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOLDS 1
#endif

static uint32_t table[8][256]; /* filled under the interpreter's lock */

static void fill(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        table[0][i] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
}

/* Eight bytes at a time. */
static uint32_t by_table(uint32_t c, const unsigned char *at, const unsigned char *end)
{
    for (; end - at >= 8; at += 8) {
        uint32_t low = c ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        c = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^ table[4][low >> 24]
            ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    while (at < end) c = table[0][(c ^ *at++) & 255] ^ c >> 8;
    return c;
}

#ifdef FOLDS
/* Fold 128 bits forward: each half is multiplied by a power of x, modulo the polynomial, in reflected bit order. */
__attribute__((target("pclmul"))) static __m128i further(__m128i bits, __m128i powers, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(bits, powers, 0x00), high = _mm_clmulepi64_si128(bits, powers, 0x11);
    return _mm_xor_si128(next, _mm_xor_si128(low, high));
}

/* Fold whole 64-byte blocks, at least one, to 16 bytes with the same remainder. */
__attribute__((target("pclmul"))) static const unsigned char *fold(uint32_t c, const unsigned char *at,
                                                                  const unsigned char *end, unsigned char *rest)
{
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4), by_128 = _mm_set_epi64x(0xccaa009e, 0x1751997d0);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++) lanes[i] = _mm_loadu_si128((const __m128i *)at + i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)c));
    for (at += 64; end - at >= 64; at += 64)
        for (int i = 0; i < 4; i++) lanes[i] = further(lanes[i], by_512, _mm_loadu_si128((const __m128i *)at + i));
    for (int i = 1; i < 4; i++) lanes[i] = further(lanes[i - 1], by_128, lanes[i]);
    _mm_storeu_si128((__m128i *)rest, lanes[3]);
    return at;
}
#endif

PyObject *crc32_of(PyObject *self, PyObject *argument)
{
    Py_buffer view;
    (void)self;
    if (PyObject_GetBuffer(argument, &view, PyBUF_SIMPLE)) return NULL;
    if (!table[0][1]) fill();
    const unsigned char *at = view.buf, *end = at + view.len;
    uint32_t c = 0xFFFFFFFFu;
#ifdef FOLDS
    if (view.len >= 128 && __builtin_cpu_supports("pclmul")) {
        unsigned char rest[16];
        at = fold(c, at, end, rest);
        c = by_table(0, rest, rest + sizeof rest);
    }
#endif
    c = by_table(c, at, end);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(c ^ 0xFFFFFFFFu);
}
