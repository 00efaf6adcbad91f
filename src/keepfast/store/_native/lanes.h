/* BLAKE3's compression of several pieces in parallel, one in each lane of a vector. Included once for each instruction set,
   with LANES (number of lanes), KIND (suffix of the names) and FOR (target attribute). */
#define NAMED_(name, kind) name##kind
#define NAMED(name, kind) NAMED_(name, kind)
#define Words NAMED(Words, KIND)

typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

/* Compress up to LANES pieces to their end. */
FOR static void NAMED(compress, KIND)(const Piece *pieces, int count)
{
    union { Words words[8]; uint32_t numbers[8][LANES]; } chain;
    union { Words words[16]; uint32_t numbers[16][LANES]; } text;
    union { Words words; uint32_t numbers[LANES]; } low, high, size, flags, live;
    uint8_t padded[LANES][BLOCK];
    Words v[16];
    uint32_t most = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const Piece *piece = &pieces[lane < count ? lane : 0];
        low.numbers[lane] = (uint32_t)piece->counter;
        high.numbers[lane] = (uint32_t)(piece->counter >> 32);
        if (piece->blocks > most)
            most = piece->blocks;
        for (int i = 0; i < 8; i++)
            chain.numbers[i][lane] = START_VALUES[i];
    }
    for (uint32_t block = 0; block < most; block++) {
        int all = 1;
        for (int lane = 0; lane < LANES; lane++) {
            const Piece *piece = &pieces[lane < count ? lane : 0];
            const uint8_t *from = piece->at + (size_t)block * BLOCK;
            int last = block + 1 == piece->blocks, over = block >= piece->blocks;
            size.numbers[lane] = last ? piece->rest : BLOCK;
            flags.numbers[lane] = (block ? 0 : piece->first) | (last ? piece->last : 0);
            live.numbers[lane] = over ? 0 : UINT32_MAX;
            all &= !over;
            if (over || (last && piece->rest < BLOCK)) {
                memset(padded[lane], 0, BLOCK);
                if (last && piece->rest)
                    memcpy(padded[lane], from, piece->rest);
                from = padded[lane];
            }
#if LANES == 16 && !defined(__clang__)
            memcpy(&text.words[lane], from, BLOCK);
        }
        /* Transpose: swap halves of pairs, then quarters, and so on. */
#pragma GCC unroll 4
        for (int wide = LANES / 2; wide; wide /= 2)
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++)
                if (!(i & wide)) {
                    Words one = text.words[i], other = text.words[i + wide], near, far;
                    for (int j = 0; j < LANES; j++) {
                        near[j] = j & wide ? LANES + j - wide : j;
                        far[j] = j & wide ? LANES + j : j + wide;
                    }
                    text.words[i] = __builtin_shuffle(one, other, near);
                    text.words[i + wide] = __builtin_shuffle(one, other, far);
                }
#else
            uint32_t row[16];
            memcpy(row, from, BLOCK);
            for (int i = 0; i < 16; i++)
                text.numbers[i][lane] = row[i];
        }
#endif
        for (int i = 0; i < 8; i++)
            v[i] = chain.words[i];
        for (int i = 0; i < 4; i++)
            v[8 + i] = (Words){0} + START_VALUES[i];
        v[12] = low.words;
        v[13] = high.words;
        v[14] = size.words;
        v[15] = flags.words;
#define TURN(x, n) (((x) >> (n)) | ((x) << (32 - (n))))
#define MIX(a, b, c, d, x, y) \
    v[a] += v[b] + text.words[x]; v[d] ^= v[a]; v[d] = TURN(v[d], 16); v[c] += v[d]; v[b] ^= v[c]; v[b] = TURN(v[b], 12); \
    v[a] += v[b] + text.words[y]; v[d] ^= v[a]; v[d] = TURN(v[d], 8); v[c] += v[d]; v[b] ^= v[c]; v[b] = TURN(v[b], 7);
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    MIX(0, 4, 8, 12, a, b) MIX(1, 5, 9, 13, c, d) MIX(2, 6, 10, 14, e, f) MIX(3, 7, 11, 15, g, h) \
    MIX(0, 5, 10, 15, i, j) MIX(1, 6, 11, 12, k, l) MIX(2, 7, 8, 13, m, n) MIX(3, 4, 9, 14, o, p)
        ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        ROUND(2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
        ROUND(3, 4, 10, 12, 13, 2, 7, 14, 6, 5, 9, 0, 11, 15, 8, 1)
        ROUND(10, 7, 12, 9, 14, 3, 13, 15, 4, 0, 11, 2, 5, 8, 1, 6)
        ROUND(12, 13, 9, 11, 15, 10, 14, 8, 7, 2, 5, 3, 0, 1, 6, 4)
        ROUND(9, 14, 11, 5, 8, 12, 15, 1, 13, 3, 0, 10, 2, 6, 4, 7)
        ROUND(11, 15, 5, 0, 1, 9, 8, 6, 14, 10, 2, 12, 3, 4, 7, 13)
#undef ROUND
#undef MIX
#undef TURN
        for (int i = 0; i < 8; i++) {
            Words made = v[i] ^ v[i + 8];
            chain.words[i] = all ? made : (made & live.words) | (chain.words[i] & ~live.words);
        }
    }
    for (int lane = 0; lane < count; lane++)
        for (int i = 0; i < 8; i++)
            pieces[lane].result[i] = chain.numbers[i][lane];
}

#undef Words
#undef NAMED
#undef NAMED_
#undef LANES
#undef KIND
#undef FOR
