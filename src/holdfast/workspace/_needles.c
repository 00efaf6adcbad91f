/* Which of many marks does a content have in it? One pass over every other byte; the same answers as in judge.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define SHORTEST 4
#define BITS 15
#define MOST 1024

/* A mark of four bytes or more has its first three bytes, or the three behind the first, at an even place. Looking at
   even places one by one, without jumping, lets the processor work on several of them at once. */
static uint8_t known[1 << BITS];   /* by three folded bytes: do they begin a mark (1), or come behind its first byte (2)? */
static uint16_t first[1 << BITS];  /* by the first three bytes of a mark: the first one of that chain, plus one */
static uint16_t next_mark[MOST];
static uint8_t length[MOST], kind[MOST];
static const uint8_t *mark[MOST];
static PyObject *held;             /* the packed marks that the tables point into */

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

static uint8_t folded(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c; }

static PyObject *load(PyObject *self, PyObject *marks)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(marks, &data, &size) < 0)
        return NULL;
    memset(known, 0, sizeof known);
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
        known[block(mark[count])] |= 1;
        known[block(mark[count] + 1)] |= 2;
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

static int matches(int number, const uint8_t *p, const uint8_t *end)
{
    if (end - p < length[number])
        return 0;
    if (kind[number] == 1)
        return !memcmp(p, mark[number], length[number]);
    for (int i = 0; i < length[number]; i++)
        if (folded(p[i]) != mark[number][i])
            return 0;
    return kind[number] == 2 || has_password(p + length[number], end);
}

static int reported(int number) { return kind[number] == 2 ? 2 : 1; }

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
        for (int number = first[block(p)]; number; number = next_mark[number - 1])
            if ((s->places || !(s->found & reported(number - 1))) && matches(number - 1, p, s->end))
                here |= reported(number - 1);
    s->found |= here;
    if (s->places && here & s->wanted) {
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
    const uint8_t *start = s->start;
    Py_ssize_t i = 0, size = s->end - start;
    for (; i + 9 <= size && (s->places || s->found != 3); i += 8) {
        const uint8_t *p = start + i;
        uint64_t bytes = eight(p) | 0x2020202020202020u;
        uint32_t last = (uint32_t)(bytes >> 48) | (uint32_t)(p[8] | 0x20) << 16;
        uint8_t a = known[hashed((uint32_t)bytes)], b = known[hashed((uint32_t)(bytes >> 16))];
        uint8_t c = known[hashed((uint32_t)(bytes >> 32))], d = known[hashed(last)];
        if (a | b | c | d) {
            uint8_t each[4] = {a, b, c, d};
            for (int j = 0; j < 4; j++) {
                if (each[j] & 2 && i + j && at(s, p + 2 * j - 1) < 0)
                    return -1;
                if (each[j] & 1 && at(s, p + 2 * j) < 0)
                    return -1;
            }
        }
    }
    for (i = i ? i - 1 : 0; i + SHORTEST <= size && (s->places || s->found != 3); i++)
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
    if (!held) {
        PyErr_SetString(PyExc_ValueError, "no marks are loaded");
        return -1;
    }
    s->start = (const uint8_t *)data;
    s->end = s->start + size;
    return 0;
}

static PyObject *scan(PyObject *self, PyObject *content)
{
    Search s = {NULL, NULL, 0, 0, NULL};
    if (begin(&s, content) < 0 || search(&s) < 0)
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
    {"load", load, METH_O, "load(marks): take over packed marks; `scan` looks for them."},
    {"scan", scan, METH_O, "scan(content): 1 if a sign is in it, 2 if a word is, 3 if both."},
    {"places", places, METH_VARARGS, "places(content, kinds): where marks of these kinds begin, in order; some may be twice."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_needles", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__needles(void) { return PyModule_Create(&module); }
