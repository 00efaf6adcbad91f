/* Assembles the next stat cache from pieces of the last one and new entries: the same result as stat_cache_pieces.py. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>
#include "cache.h"

typedef struct {
    uint32_t start, end, of_old; /* the first file, the one after the last, and whether they come from the last cache */
} Piece;

typedef struct {
    const int64_t *columns[3];
    const char *text;
    uint32_t files;
    uint32_t *offsets; /* of each name in the text, and of the text's end */
} Source;

/* Find the offsets of the names; false if memory runs out, or if the text has a different number of names. */
static int index_names(Source *s, int64_t bytes)
{
    if (bytes > UINT32_MAX || !sound(s->text, bytes, s->files)) return 0;
    s->offsets = malloc(4 * ((size_t)s->files + 1));
    if (!s->offsets) return 0;
    const char *name = s->text;
    for (uint32_t i = 0; i < s->files; i++, name += strlen(name) + 1) s->offsets[i] = (uint32_t)(name - s->text);
    s->offsets[s->files] = (uint32_t)bytes;
    return 1;
}

/* Count the files and name bytes of all pieces; false if a piece lies outside its source. */
static int measure(const Piece *pieces, size_t n, const Source *sources, uint64_t *files, uint64_t *bytes)
{
    for (size_t i = 0; i < n; i++) {
        const Piece *p = &pieces[i];
        if (p->of_old > 1 || p->start > p->end || p->end > sources[p->of_old].files) return 0;
        *files += p->end - p->start;
        *bytes += sources[p->of_old].offsets[p->end] - sources[p->of_old].offsets[p->start];
    }
    return *files <= UINT32_MAX;
}

static void copy(const Piece *pieces, size_t n, const Source *sources, size_t files, char *columns, char *text)
{
    for (size_t i = 0; i < n; i++) {
        const Piece *p = &pieces[i];
        const Source *s = &sources[p->of_old];
        size_t count = p->end - p->start, bytes = s->offsets[p->end] - s->offsets[p->start];
        for (size_t c = 0; c < 3; c++)
            if (count) memcpy(columns + 8 * c * files, s->columns[c] + p->start, 8 * count);
        memcpy(text, s->text + s->offsets[p->start], bytes);
        columns += 8 * count;
        text += bytes;
    }
}

PyObject *join_pieces(PyObject *self, PyObject *arguments)
{
    Py_buffer raw, new_columns, new_text, pieces;
    Layout l;
    Source sources[2] = {{{0}, NULL, 0, NULL}, {{0}, NULL, 0, NULL}}, *fresh = &sources[0], *old = &sources[1];
    uint64_t files = 0, bytes = 0;
    PyObject *columns = NULL, *text = NULL, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*", &raw, &new_columns, &new_text, &pieces)) return NULL;
    size_t n = (size_t)pieces.len / sizeof(Piece);
    int well = lay_out(raw.buf, raw.len, &l) && !((uintptr_t)pieces.buf % 4) && !((uintptr_t)new_columns.buf % 8)
               && new_columns.len % 24 == 0 && new_columns.len / 24 <= UINT32_MAX;
    if (well) {
        *old = (Source){{l.ctime, l.size, l.inode}, l.names, (uint32_t)l.files, NULL};
        const int64_t *column = new_columns.buf;
        size_t count = (size_t)new_columns.len / 24;
        *fresh = (Source){{column, column + count, column + 2 * count}, new_text.buf, (uint32_t)count, NULL};
        well = index_names(old, l.paths - l.names) && index_names(fresh, new_text.len)
               && measure(pieces.buf, n, sources, &files, &bytes);
    }
    if (!well)
        PyErr_SetString(PyExc_ValueError, "the stat cache is malformed, or has no such pieces");
    else if ((columns = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(24 * files)))
             && (text = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes))) {
        copy(pieces.buf, n, sources, files, PyByteArray_AsString(columns), PyBytes_AsString(text));
        result = PyTuple_Pack(2, columns, text);
    }
    Py_XDECREF(columns);
    Py_XDECREF(text);
    free(old->offsets);
    free(fresh->offsets);
    PyBuffer_Release(&raw);
    PyBuffer_Release(&new_columns);
    PyBuffer_Release(&new_text);
    PyBuffer_Release(&pieces);
    return result;
}

/* Return the offsets of these files' names in the text of all names; the number after the last file gives the text's end. */
PyObject *offsets(PyObject *self, PyObject *arguments)
{
    Py_buffer raw, numbers;
    Layout l;
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*y*", &raw, &numbers)) return NULL;
    const uint32_t *wanted = numbers.buf;
    size_t n = (size_t)numbers.len / 4;
    if (!lay_out(raw.buf, raw.len, &l) || (uintptr_t)wanted % 4 || !rises(wanted, n) || (n && wanted[n - 1] > l.files))
        PyErr_SetString(PyExc_ValueError, "the stat cache is malformed, or has no such files");
    else
        result = PyList_New((Py_ssize_t)n);
    const char *name = l.names;
    uint32_t file = 0;
    for (size_t i = 0; result && i < n; i++) {
        for (; file < wanted[i]; file++) name += strlen(name) + 1;
        PyObject *offset = PyLong_FromSsize_t(name - l.names);
        if (!offset || PyList_SetItem(result, (Py_ssize_t)i, offset)) {
            Py_DECREF(result);
            result = NULL;
        }
    }
    PyBuffer_Release(&raw);
    PyBuffer_Release(&numbers);
    return result;
}
