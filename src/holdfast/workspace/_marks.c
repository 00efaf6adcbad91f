/* Which of many marks does a content have in it? One pass over every other byte; the same answers as in judge.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SHORTEST 4
#define BITS 15
#define FINE_BITS 16
#define MOST 1024

/* A mark of four bytes or more has its first three bytes, or the three behind the first, at an even place. Looking at
   even places one by one, without jumping, lets the processor work on several of them at once. */
static uint8_t known[1 << BITS];   /* by three folded bytes: do they begin a mark (1 sign, 2 word), or come behind its first byte? */
static uint8_t fine[2][1 << FINE_BITS >> 3]; /* a bit by four folded bytes: do they begin a sign [0], any mark [1]? */
static uint16_t first[1 << BITS];  /* by the first three bytes of a mark: the first one of that chain, plus one */
static uint16_t next_mark[MOST];
static uint8_t length[MOST], kind[MOST];
static const uint8_t *mark[MOST];
static PyObject *held;             /* the packed marks that the tables point into */
static uint8_t in_rest[256];       /* bytes that the rest of a key may have */
static int rest_length;

/* Letters of either case fall together, and so do some signs: that only costs a comparison. */
static unsigned hashed(uint32_t bytes) { return ((bytes & 0xffffffu) * 2654435761u) >> (32 - BITS); }

static unsigned block(const uint8_t *p)
{
    return hashed(((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16) | 0x202020u);
}

/* Eight bytes at once, the first one lowest, on any processor. */
static uint64_t eight(const uint8_t *p)
{
    uint64_t bytes;
    memcpy(&bytes, p, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bytes = __builtin_bswap64(bytes);
#endif
    return bytes;
}

static unsigned fine_place(uint32_t bytes) { return (bytes * 2654435761u) >> (32 - FINE_BITS); }

static unsigned begins(const uint8_t *table, uint64_t bytes)
{
    unsigned place = fine_place((uint32_t)bytes);
    return (unsigned)table[place >> 3] >> (place & 7) & 1;
}

static uint8_t folded(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c; }

static int reported(int number) { return kind[number] == 2 ? 2 : 1; }

static PyObject *load(PyObject *self, PyObject *arguments)
{
    PyObject *marks;
    char *data;
    const char *rest;
    Py_ssize_t size, rest_size;
    if (!PyArg_ParseTuple(arguments, "Oy#i", &marks, &rest, &rest_size, &rest_length)
        || PyBytes_AsStringAndSize(marks, &data, &size) < 0)
        return NULL;
    memset(in_rest, 0, sizeof in_rest);
    for (Py_ssize_t i = 0; i < rest_size; i++)
        in_rest[(uint8_t)rest[i]] = 1;
    memset(known, 0, sizeof known);
    memset(fine, 0, sizeof fine);
    memset(first, 0, sizeof first);
    int count = 0;
    for (Py_ssize_t at = 0; at + 2 < size && count < MOST; count++) {
        length[count] = (uint8_t)data[at];
        kind[count] = (uint8_t)data[at + 1];
        mark[count] = (const uint8_t *)data + at + 2;
        at += 2 + length[count];
        if (length[count] < SHORTEST || at > size) {
            PyErr_SetString(PyExc_ValueError, "a mark is too short, or cut off");
            return NULL;
        }
        const uint8_t *m = mark[count];
        uint8_t as = (uint8_t)reported(count);
        known[block(m)] |= as;
        known[block(m + 1)] |= as;
        unsigned place = fine_place((m[0] | (uint32_t)m[1] << 8 | (uint32_t)m[2] << 16 | (uint32_t)m[3] << 24) | 0x20202020u);
        for (int any = as == 2; any < 2; any++)
            fine[any][place >> 3] |= (uint8_t)(1 << (place & 7));
        next_mark[count] = first[block(mark[count])];
        first[block(mark[count])] = (uint16_t)(count + 1);
    }
    Py_INCREF(marks);
    Py_XDECREF(held);
    held = marks;
    Py_RETURN_NONE;
}

/* Is there `user:password@` at the beginning of this address? */
static int has_password(const uint8_t *p, const uint8_t *end)
{
    int colon = 0;
    if (end - p > 200)
        end = p + 200;
    for (; p < end && *p > ' ' && *p != '/' && *p != '"' && *p != '\'' && *p != '<' && *p != '>'; p++) {
        if (*p == '@')
            return colon;
        colon |= *p == ':';
    }
    return 0;
}

/* Could what is here be the rest of a key? */
static int goes_on(const uint8_t *p, const uint8_t *end)
{
    if (end - p < rest_length)
        return 0;
    for (int i = 0; i < rest_length; i++)
        if (!in_rest[p[i]])
            return 0;
    return 1;
}

static int matches(int number, const uint8_t *p, const uint8_t *end)
{
    if (end - p < length[number])
        return 0;
    if (kind[number] == 1 || kind[number] == 8)
        return !memcmp(p, mark[number], length[number]) && (kind[number] == 1 || goes_on(p + length[number], end));
    for (int i = 0; i < length[number]; i++)
        if (folded(p[i]) != mark[number][i])
            return 0;
    return kind[number] == 2 || has_password(p + length[number], end);
}

typedef struct {
    const uint8_t *start, *end;
    int found, wanted;
    PyObject *places;               /* where they are, if somebody wants to know */
} Search;

/* -1: no memory for what was found. */
static int at(Search *s, const uint8_t *p)
{
    int here = 0;
    if (s->end - p >= SHORTEST)
        for (int number = first[block(p)]; number; number = next_mark[number - 1]) {
            int as = reported(number - 1);
            if (as & s->wanted && (s->places || !(s->found & as)) && matches(number - 1, p, s->end))
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

static int search(Search *s)
{
    const uint8_t *start = s->start, *table = fine[s->wanted != 1];
    const uint64_t fold = 0x2020202020202020u;
    Py_ssize_t i = 0, size = s->end - start;
    for (; i + 11 <= size && (s->places || s->found != s->wanted); i += 8) {
        const uint8_t *p = start + i;
        uint64_t bytes = eight(p) | fold, further = eight(p + 3) | fold;
        uint32_t last = (uint32_t)(bytes >> 48) | (uint32_t)(further >> 40 & 0xff) << 16;
        int maybe = known[hashed((uint32_t)bytes)] | known[hashed((uint32_t)(bytes >> 16))]
                    | known[hashed((uint32_t)(bytes >> 32))] | known[hashed(last)];
        if (maybe & s->wanted) {
            /* Which of the eight places from the byte before on? Asked of all at once: guessing costs more. */
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
    for (i = i ? i - 1 : 0; i + SHORTEST <= size && (s->places || s->found != s->wanted); i++)
        if (at(s, start + i) < 0)
            return -1;
    return 0;
}

static int begin(Search *s, PyObject *content)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(content, &data, &size) < 0)
        return -1;
    if (!held || s->wanted < 1 || s->wanted > 3) {
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
    if (!PyArg_ParseTuple(arguments, "Oi", &content, &s.wanted) || begin(&s, content) < 0 || search(&s) < 0)
        return NULL;
    return PyLong_FromLong(s.found);
}

static PyObject *places(PyObject *self, PyObject *arguments)
{
    PyObject *content;
    Search s = {NULL, NULL, 0, 0, NULL};
    if (!PyArg_ParseTuple(arguments, "Oi", &content, &s.wanted) || begin(&s, content) < 0)
        return NULL;
    s.places = PyList_New(0);
    if (!s.places || search(&s) < 0) {
        Py_XDECREF(s.places);
        return NULL;
    }
    return s.places;
}

static PyMethodDef methods[] = {
    {"load", load, METH_VARARGS, "load(marks, rest, length): take over packed marks; `scan` looks for them."},
    {"scan", scan, METH_VARARGS, "scan(content, kinds): of the kinds asked for: 1 if a sign is in it, 2 if a word is, 3 if both."},
    {"places", places, METH_VARARGS, "places(content, kinds): where marks of these kinds begin, in order."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_marks", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__marks(void) { return PyModule_Create(&module); }
