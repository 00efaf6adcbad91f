/* Searches a content for many marks: one pass over every other byte for each kind; the same results as plain_marks.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define WIDE 1
#else
#define WIDE 0
#endif

#define SHORTEST 3
#define BEGIN 4
#define BITS 18
#define FINE_BITS 18
#define MOST 4096
#define LONGEST 64
#define LEAST_FORM 5
#define FURTHEST 640
#define FURTHEST_BREAK 80
#define LONGEST_COLOUR 20
#define LEAST_CODED 24
#define MOST_STRANGE 4

enum { SIGN = 1, WORD = 2, ADDRESS = 4, CHANCE = 8, PART = 15, CODED = 16, BOUND = 32 };

/* In a mark of four bytes or more (or of three and any following letter), either the first three bytes or bytes two to four begin
   at an even offset. Testing every even offset, without skips, lets the processor work on several at once. Signs [0] are matched
   exactly, words [1] without regard to case: upper and lower case letters share a slot, and so do some other bytes, which
   only costs a comparison. */
static uint8_t known[2][1 << BITS >> 3];      /* by three bytes: 1 if they are the first three of a mark, or its bytes two to four */
static uint8_t fine[2][1 << FINE_BITS >> 3];  /* by four bytes: 1 if a mark begins with them */
static uint16_t first[1 << BITS];             /* by the first three bytes of a mark: number of the first mark of that chain, plus one */
static uint16_t next_mark[MOST];
static uint8_t length[MOST], kind[MOST], bound[MOST];
static uint8_t mark[MOST][LONGEST];
static int count;
static uint8_t in_rest[256]; /* bytes that may occur in the rest of a key */
static int rest_length;
static uint8_t sixths[256]; /* values of base64 characters */

/* AVX-512 VBMI looks up 64 bytes at once in a table of 128. Each byte of such a table has one bit for each of eight groups of
   marks: 1 if it may be the first, second, third or fourth byte of one of them. */
#define GROUPS 16
static uint8_t wide[2][GROUPS / 8][BEGIN][128];
static int is_wide;

static const uint64_t FOLD = 0x2020202020202020u;

/* Return the table index of three bytes, lowest first; of two such triples, 32 bits apart, at once. Higher bits are ignored. */
static uint64_t places_of(uint64_t bytes) { return (bytes ^ bytes >> 6) & 0x0003ffff0003ffffu; }

static unsigned place_of(uint32_t bytes) { return (unsigned)places_of(bytes); }

static uint32_t four(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Load eight bytes as little endian on any processor. */
static uint64_t eight(const uint8_t *p)
{
    uint64_t bytes;
    memcpy(&bytes, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

static unsigned is_set(const uint8_t *table, uint64_t place) { return (unsigned)table[place >> 3] >> (place & 7); }

static unsigned fine_place(uint32_t bytes) { return (bytes * 2654435761u) >> (32 - FINE_BITS); }

static unsigned begins(const uint8_t *table, uint64_t bytes)
{
    return is_set(table, fine_place((uint32_t)bytes)) & 1;
}

static int is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static uint8_t folded(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c; }

static int reported(int number) { return kind[number] == WORD ? WORD : SIGN; }

static void put_in(uint8_t *table, unsigned place) { table[place >> 3] |= (uint8_t)(1 << (place & 7)); }

static void note(int which, uint32_t bytes)
{
    put_in(known[which], place_of(bytes));
    put_in(known[which], place_of(bytes >> 8));
    put_in(fine[which], fine_place(bytes));
}

/* Return false, with an exception set, if the mark does not fit. */
static int add(const uint8_t *bytes, Py_ssize_t size, int as)
{
    int part = as & PART;
    if (size < (part == CHANCE ? SHORTEST : BEGIN) || size > LONGEST || count == MOST) {
        PyErr_SetString(PyExc_ValueError, "a mark is too short or too long, or there are too many");
        return 0;
    }
    length[count] = (uint8_t)size;
    kind[count] = (uint8_t)part;
    bound[count] = (as & BOUND) != 0;
    memset(mark[count], 0, BEGIN);
    memcpy(mark[count], bytes, (size_t)size);
    uint32_t begin = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16;
    if (size < BEGIN) {
        for (uint32_t c = 0; c < 256; c++)
            if (in_rest[c])
                note(0, begin | c << 24);
    } else {
        begin = four(bytes);
        note(part == WORD, part == WORD ? begin | (uint32_t)FOLD : begin);
    }
    if (part == ADDRESS)
        note(0, begin & ~0x20u); /* its first letter may be upper case */
    unsigned place = place_of(begin | (uint32_t)FOLD);
    next_mark[count] = first[place];
    first[place] = (uint16_t)++count;
    return 1;
}

/* Add the base64 forms of a mark, one for each of its three possible alignments, if they are long enough to search for. */
static int add_forms(const uint8_t *bytes, Py_ssize_t size)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int shift = 0; shift < 3; shift++) {
        uint8_t form[LONGEST * 4 / 3 + 8];
        Py_ssize_t bits = 8 * (shift + size), letters = bits / 6;
        /* The first characters also encode bits of the preceding bytes; the last one is omitted if it also encodes following bytes. */
        Py_ssize_t from = shift ? shift + 1 : 0;
        for (Py_ssize_t at = from; at < letters; at++) {
            unsigned letter = 0;
            for (Py_ssize_t bit = 6 * at; bit < 6 * at + 6; bit++) {
                Py_ssize_t byte = bit / 8 - shift;
                letter = letter << 1 | (byte < 0 ? 0 : bytes[byte] >> (7 - bit % 8) & 1u);
            }
            form[at - from] = (uint8_t)alphabet[letter];
        }
        int enough = letters - from >= LEAST_FORM;
        /* A short form counts only at the beginning of the encoded text, or where a key could follow. */
        int few = shift ? CHANCE : CHANCE | BOUND;
        if ((enough || letters - from == BEGIN) && !add(form, letters - from, enough ? SIGN : few))
            return 0;
    }
    return 1;
}

static int by_letters(const void *one, const void *other)
{
    static const int order[BEGIN] = {0, 2, 1, 3}; /* sorts marks with a common beginning next to each other */
    const uint8_t *a = mark[*(const uint16_t *)one], *b = mark[*(const uint16_t *)other];
    for (int i = 0; i < BEGIN; i++)
        if (a[order[i]] != b[order[i]])
            return a[order[i]] < b[order[i]] ? -1 : 1;
    return 0;
}

static void put(int which, int group, int number)
{
    const uint8_t bit = (uint8_t)(1 << (group & 7));
    for (int i = 0; i < BEGIN && i < length[number]; i++) {
        uint8_t c = which ? mark[number][i] | 0x20 : mark[number][i];
        wide[which][group >> 3][i][c & 127] |= bit;
        if (kind[number] == ADDRESS && !i)
            wide[which][group >> 3][i][c & 95] |= bit;
    }
    for (int c = 0; length[number] < BEGIN && c < 128; c++)
        if (in_rest[c])
            wide[which][group >> 3][BEGIN - 1][c] |= bit;
}

/* Marks with a common beginning share a group; addresses, which begin with any letter, have their own. */
static void group_marks(void)
{
    uint16_t order[MOST];
    memset(wide, 0, sizeof wide);
    for (int which = 0; which < 2; which++) {
        int found = 0;
        for (int number = 0; number < count; number++)
            if (kind[number] == ADDRESS && !which)
                put(which, GROUPS - 1, number);
            else if (kind[number] != ADDRESS && (kind[number] == WORD) == which)
                order[found++] = (uint16_t)number;
        qsort(order, (size_t)found, sizeof *order, by_letters);
        for (int i = 0; i < found; i++)
            put(which, i * (GROUPS - 1) / found, order[i]);
    }
}

static PyObject *load(PyObject *self, PyObject *arguments)
{
    const char *packed, *rest;
    Py_ssize_t size, rest_size;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y#y#ip", &packed, &size, &rest, &rest_size, &rest_length, &is_wide))
        return NULL;
    memset(in_rest, 0, sizeof in_rest);
    for (Py_ssize_t i = 0; i < rest_size; i++)
        in_rest[(uint8_t)rest[i]] = 1;
    memset(known, 0, sizeof known);
    memset(fine, 0, sizeof fine);
    memset(first, 0, sizeof first);
    count = 0;
    for (Py_ssize_t at = 0; at + 2 < size;) {
        const uint8_t *bytes = (const uint8_t *)packed + at + 2;
        Py_ssize_t here = (uint8_t)packed[at];
        int as = (uint8_t)packed[at + 1];
        at += 2 + here;
        if (at > size || here > LONGEST) {
            PyErr_SetString(PyExc_ValueError, "a mark is cut off or too long");
            return NULL;
        }
        if (((as & PART) && !add(bytes, here, as)) || ((as & CODED) && !add_forms(bytes, here)))
            return NULL;
    }
#if WIDE
    is_wide = is_wide && __builtin_cpu_supports("avx512vbmi");
    if (is_wide)
        group_marks();
#else
    is_wide = 0;
#endif
    return PyBool_FromLong(is_wide);
}

static int is_blank(uint8_t c) { return c <= ' ' || c == '"' || c == '\'' || c == '\\'; }

/* Return the end of the terminal colour sequence that begins here; NULL if there is none. */
static const uint8_t *behind_colour(const uint8_t *p, const uint8_t *end)
{
    if (end - p < 3 || p[1] != '[')
        return NULL;
    if (end - p > LONGEST_COLOUR + 3)
        end = p + LONGEST_COLOUR + 3;
    for (p += 2; p < end && ((*p >= '0' && *p <= '9') || *p == ';' || *p == '?'); p++)
        ;
    return p < end && is_letter(*p) ? p + 1 : NULL;
}

/* Return the beginning of the next line, after the characters that wrapped texts and string literals have around a line end; NULL
   if the line does not end here. Also skips a colour sequence, since `grep` may colour a part of a key. */
static const uint8_t *next_line(const uint8_t *p, const uint8_t *end)
{
    int ended = 0;
    if (*p == '\x1b')
        return behind_colour(p, end);
    if (end - p > FURTHEST_BREAK)
        end = p + FURTHEST_BREAK;
    for (; p < end; p++) {
        if (*p == '\n' || (*p == 'n' && p[-1] == '\\'))
            ended = 1;
        else if (*p == '\\' || *p == '"' || *p == '\'' || *p == '+' || *p == '.' || *p == '\r')
            continue;
        else if (*p != ' ' && *p != '\t' && !(ended && (*p == '>' || *p == '|' || *p == '#' || *p == '*')))
            break;
    }
    return ended ? p : NULL;
}

/* Return whether this address begins with `user:password@`. Slashes and colons may be escaped; `coded`:
   percent-encoded. */
static int has_password(const uint8_t *p, const uint8_t *end, int coded)
{
    int colon = 0, user_has_at = 0;
    if (end - p > FURTHEST)
        end = p + FURTHEST;
    while (p < end) {
        if (*p == '\\' && end - p > 1 && (p[1] == '/' || p[1] == ':')) {
            p++;
            continue;
        }
        if (coded && *p == '%' && end - p > 2) {
            if (p[1] == '4' && p[2] == '0')
                return colon;
            colon |= p[1] == '3' && folded(p[2]) == 'a';
        }
        if (is_blank(*p)) {
            p = next_line(p, end);
            if (!p)
                return 0;
            continue;
        }
        if (*p == '<' || *p == '>' || (*p == '/' && !colon))
            return 0;
        if (*p == '@') {
            if (colon || user_has_at)
                return colon;
            user_has_at = 1;
        }
        colon |= *p++ == ':';
    }
    return 0;
}

/* Return whether the rest of a key may follow here. It may contain line ends, and its signs may be escaped by a backslash. */
static int goes_on(const uint8_t *p, const uint8_t *end)
{
    for (int letters = 0; letters < rest_length;) {
        if (!p || p >= end)
            return 0;
        if (in_rest[*p]) {
            letters++;
            p++;
        } else if (*p == '\\' && end - p > 1 && in_rest[p[1]] && !is_letter(p[1]))
            p++;
        else
            p = is_blank(*p) ? next_line(p, end) : NULL;
    }
    return 1;
}

/* Opcode of a short string in a pickle; the next byte is its length, which may look like a letter. */
#define COUNTED 0x8c

/* Return whether a word begins here. An escape sequence that ends in a letter, or a pickle length, may precede it. */
static int is_apart(const uint8_t *p, const uint8_t *start)
{
    Py_ssize_t before = p - start;
    if (!before || !is_letter(p[-1]))
        return 1;
    if ((before > 1 && (p[-2] == '\\' || p[-2] == COUNTED)) || (before > 2 && p[-3] == '%')
        || (before > 5 && p[-6] == '\\' && p[-5] == 'u') || (before > 3 && p[-4] == '\\' && p[-3] == 'x'))
        return 1;
    /* A terminal colour sequence: a bracket, digits, a letter. */
    const uint8_t *least = before > LONGEST_COLOUR + 1 ? p - 1 - LONGEST_COLOUR : start;
    for (p -= 2; p >= least; p--)
        if (!((*p >= '0' && *p <= '9') || *p == ';' || *p == '?'))
            return *p == '[';
    return 0;
}

static int matches(int number, const uint8_t *p, const uint8_t *start, const uint8_t *end)
{
    int size = length[number];
    if (end - p < size)
        return 0;
    if (kind[number] == SIGN || kind[number] == CHANCE)
        return !memcmp(p, mark[number], (size_t)size) && (size >= BEGIN || in_rest[p[size]])
               && (!bound[number] || is_apart(p, start))
               && (kind[number] == SIGN || goes_on(p + size, end));
    for (int i = 0; i < size; i++)
        if (folded(p[i]) != mark[number][i])
            return 0;
    return kind[number] == WORD || has_password(p + size, end, *p == '%');
}

typedef struct {
    const uint8_t *start, *end;
    int found, wanted;
    PyObject *places;               /* offsets of the matches, if the caller wants them */
} Search;

/* Return -1, with an exception set, if memory for the matches runs out. */
static int at(Search *s, const uint8_t *p)
{
    int here = 0;
    if (s->end - p >= BEGIN)
        for (int number = first[place_of(four(p) | (uint32_t)FOLD)]; number; number = next_mark[number - 1]) {
            int as = reported(number - 1);
            if (as & s->wanted && (s->places || !(s->found & as)) && matches(number - 1, p, s->start, s->end))
                here |= as;
        }
    s->found |= here;
    if (s->places && here) {
        PyObject *place = PyLong_FromSsize_t(p - s->start);
        if (!place || PyList_Append(s->places, place) < 0) {
            Py_XDECREF(place);
            return -1;
        }
        Py_DECREF(place);
    }
    return 0;
}

/* Find marks of one kind; returns -1 as above. */
static int search(Search *s, int which)
{
    const uint8_t *start = s->start, *table = fine[which], *three = known[which];
    const uint64_t fold = which ? FOLD : 0;
    Py_ssize_t i = 0, size = s->end - start;
    for (; i + 11 <= size && (s->places || !(s->found & s->wanted)); i += 8) {
        const uint8_t *p = start + i;
        uint64_t bytes = eight(p) | fold, further = eight(p + 2) | fold;
        uint64_t here = places_of(bytes), there = places_of(further);
        if ((is_set(three, (uint32_t)here) | is_set(three, here >> 32) | is_set(three, (uint32_t)there)
             | is_set(three, there >> 32)) & 1) {
            /* Find which of the eight offsets, from the byte before on, match. All are tested, since branches would cost more. */
            further = eight(p + 3) | fold;
            unsigned places = begins(table, bytes) << 1 | begins(table, bytes >> 8) << 2
                              | begins(table, bytes >> 16) << 3 | begins(table, bytes >> 24) << 4
                              | begins(table, bytes >> 32) << 5 | begins(table, further >> 16) << 6
                              | begins(table, further >> 24) << 7;
            if (i)
                places |= begins(table, eight(p - 1) | fold);
            for (int j = 0; places; j++, places >>= 1)
                if (places & 1 && at(s, p + j - 1) < 0)
                    return -1;
        }
    }
    for (i = i ? i - 1 : 0; i + BEGIN <= size && (s->places || !(s->found & s->wanted)); i++)
        if (at(s, start + i) < 0)
            return -1;
    return 0;
}

#if WIDE
#define LOOK(part) _mm512_and_si512(_mm512_and_si512(ASK(part, 0), ASK(part, 1)), _mm512_and_si512(ASK(part, 2), ASK(part, 3)))
#define ASK(part, i) \
    _mm512_permutex2var_epi8(table[part][i][0], _mm512_or_si512(_mm512_loadu_si512(p + (i)), fold), table[part][i][1])

__attribute__((target("avx512f,avx512bw,avx512vbmi"))) static int search_wide(Search *s, int which)
{
    const uint8_t *p = s->start;
    const uint32_t letters = which ? (uint32_t)FOLD : 0;
    const __m512i fold = _mm512_set1_epi32((int)letters);
    __m512i table[GROUPS / 8][BEGIN][2];
    for (int part = 0; part < GROUPS / 8; part++)
        for (int i = 0; i < BEGIN; i++)
            for (int half = 0; half < 2; half++)
                table[part][i][half] = _mm512_loadu_si512(wide[which][part][i] + 64 * half);
    for (; s->end - p >= 64 + BEGIN - 1; p += 64) {
        __m512i groups = _mm512_or_si512(LOOK(0), LOOK(1));
        for (uint64_t places = _mm512_test_epi8_mask(groups, groups); places; places &= places - 1) {
            const uint8_t *here = p + __builtin_ctzll(places);
            if (begins(fine[which], four(here) | letters) && at(s, here) < 0)
                return -1;
        }
        if (!s->places && s->found & s->wanted)
            return 0;
    }
    for (; s->end - p >= BEGIN && (s->places || !(s->found & s->wanted)); p++)
        if (begins(fine[which], four(p) | letters) && at(s, p) < 0)
            return -1;
    return 0;
}
#else
#define search_wide search
#endif

static int search_all(Search *s)
{
    int wanted = s->wanted;
    for (int which = 0; which < 2; which++) {
        s->wanted = wanted & (which ? WORD : SIGN);
        if (s->wanted && (is_wide ? search_wide(s, which) : search(s, which)) < 0)
            return -1;
    }
    return 0;
}

static int begin(Search *s, PyObject *content)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(content, &data, &size) < 0)
        return -1;
    if (!count || s->wanted < 1 || s->wanted > 3) {
        PyErr_SetString(PyExc_ValueError, "no marks are loaded, or none are wanted");
        return -1;
    }
    s->start = (const uint8_t *)data;
    s->end = s->start + size;
    return 0;
}

static PyObject *scan(PyObject *self, PyObject *arguments)
{
    PyObject *content;
    Search s = {NULL, NULL, 0, 0, NULL};
    (void)self;
    if (!PyArg_ParseTuple(arguments, "Oi", &content, &s.wanted) || begin(&s, content) < 0 || search_all(&s) < 0)
        return NULL;
    return PyLong_FromLong(s.found);
}

static PyObject *places(PyObject *self, PyObject *arguments)
{
    PyObject *content;
    Search s = {NULL, NULL, 0, 0, NULL};
    (void)self;
    if (!PyArg_ParseTuple(arguments, "Oi", &content, &s.wanted) || begin(&s, content) < 0)
        return NULL;
    s.places = PyList_New(0);
    if (!s.places || search_all(&s) < 0 || PyList_Sort(s.places) < 0) {
        Py_XDECREF(s.places);
        return NULL;
    }
    return s.places;
}

/* Return the value of a character of either base64 alphabet; 255 for all others. */
static uint8_t sixth(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return (uint8_t)(c - 'A');
    if (c >= 'a' && c <= 'z')
        return (uint8_t)(c - 'a' + 26);
    if (c >= '0' && c <= '9')
        return (uint8_t)(c - '0' + 52);
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : 255;
}

static int is_strange(unsigned c)
{
    c &= 255;
    return (c < ' ' && c != '\t' && c != '\n' && c != '\r') || c > '~';
}

/* Return whether the first characters decode to text. */
static int is_text(const uint8_t *p)
{
    int strange = 0;
    for (int i = 0; i < LEAST_CODED && strange <= MOST_STRANGE; i += 4) {
        unsigned three = 0;
        for (int j = 0; j < 4; j++)
            three = three << 6 | sixths[p[i + j]];
        strange += is_strange(three >> 16) + is_strange(three >> 8) + is_strange(three);
    }
    return strange <= MOST_STRANGE;
}

static PyObject *coded(PyObject *self, PyObject *content)
{
    char *data;
    Py_ssize_t size;
    (void)self;
    if (PyBytes_AsStringAndSize(content, &data, &size) < 0)
        return NULL;
    PyObject *found = PyList_New(0);
    const uint8_t *start = (const uint8_t *)data, *end = start + size, *from = start;
    /* A run is too short if one of its first characters is not base64; testing those first skips most bytes. */
    while (found && end - from >= LEAST_CODED) {
        Py_ssize_t at = LEAST_CODED - 1;
        while (at >= 0 && sixths[from[at]] < 64)
            at--;
        if (at >= 0) {
            from += at + 1;
            continue;
        }
        const uint8_t *last = from + LEAST_CODED;
        while (last < end && sixths[*last] < 64)
            last++;
        /* An escaped line end does not belong to the run. */
        if (from > start && from[-1] == '\\' && (*from == 'n' || *from == 'r'))
            from++;
        if (last - from >= LEAST_CODED && is_text(from)) {
            PyObject *place = PyLong_FromSsize_t(from - start);
            if (!place || PyList_Append(found, place) < 0)
                Py_CLEAR(found);
            Py_XDECREF(place);
        }
        from = last;
    }
    return found;
}

static PyMethodDef methods[] = {
    {"load", load, METH_VARARGS, "load(marks, rest, length, wide): set the packed marks that `scan` searches for. Returns whether it tests 64 bytes at once."},
    {"scan", scan, METH_VARARGS, "scan(content, kinds): of these kinds: 1 if it contains a sign, 2 if it contains a word, 3 if both."},
    {"places", places, METH_VARARGS, "places(content, kinds): ascending offsets of marks of these kinds."},
    {"coded", coded, METH_O, "coded(content): ascending offsets of base64 that decodes to text."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_marks", BUILT_FROM, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__marks(void)
{
    for (int c = 0; c < 256; c++)
        sixths[c] = sixth((uint8_t)c);
    return PyModule_Create(&module);
}
