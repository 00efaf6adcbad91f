/* Reads a whole frame of a pack in one call, decompresses it, and checks every wanted content against its digest, without Python. The
   same as bulk_read.py, which does it again if this fails. Zstandard comes from the compiled module that Python uses. */
#define _FILE_OFFSET_BITS 64
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 64
#define CHUNK 1024
#define MOST_LANES 16
#define ZSTD 2 /* the first byte of a Zstandard frame */
#define IDLE 4
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t START_VALUES[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/* Consecutive blocks that are compressed to eight words; the last block has `rest` bytes. */
typedef struct {
    const uint8_t *at;
    uint64_t counter;
    uint32_t blocks, rest, first, last; /* flags of the first block, and of the last */
    uint32_t *result;
} Piece;

#define LANES 4
#define KIND _plain
#define FOR
#include "lanes.h"
#if defined(__x86_64__) && defined(__GNUC__)
#define LANES 8
#define KIND _avx2
#define FOR __attribute__((target("avx2")))
#include "lanes.h"
#define LANES 16
#define KIND _avx512
#define FOR __attribute__((target("avx512f")))
#include "lanes.h"
#endif

static int lanes = 4;
static void (*compress)(const Piece *, int) = compress_plain;

static void choose_lanes(int most)
{
    lanes = 4;
    compress = compress_plain;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (most >= 16 && __builtin_cpu_supports("avx512f")) {
        lanes = 16;
        compress = compress_avx512;
    } else if (most >= 8 && __builtin_cpu_supports("avx2")) {
        lanes = 8;
        compress = compress_avx2;
    }
#else
    (void)most;
#endif
}

/* Pieces that wait until every lane has one. */
typedef struct {
    Piece pieces[MOST_LANES];
    int count;
} Waiting;

static void finish(Waiting *waiting)
{
    if (waiting->count)
        compress(waiting->pieces, waiting->count);
    waiting->count = 0;
}

static void add(Waiting *waiting, Piece piece)
{
    waiting->pieces[waiting->count++] = piece;
    if (waiting->count == lanes)
        finish(waiting);
}

typedef struct {
    Py_ssize_t offset, length;
    const uint8_t *key;
    uint32_t *values; /* eight words for each chunk, then for each pair of chunks, and so on up to the digest */
    size_t left;
} Wanted;

/* Return whether all contents match their digests; -1 if memory runs out. */
static int are_right(const uint8_t *frame, Wanted *wanted, Py_ssize_t count)
{
    size_t chunks = 0, deepest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        wanted[i].left = wanted[i].length ? ((size_t)wanted[i].length + CHUNK - 1) / CHUNK : 1;
        chunks += wanted[i].left;
        if (wanted[i].left > deepest)
            deepest = wanted[i].left;
    }
    uint32_t *values = malloc(32 * (chunks ? chunks : 1)), *next = values;
    if (!values)
        return -1;
    Waiting whole = {.count = 0}, rests = {.count = 0}; /* chunks of the same length are compressed together */
    for (Py_ssize_t i = 0; i < count; i++) {
        wanted[i].values = next;
        for (size_t number = 0; number < wanted[i].left; number++, next += 8) {
            size_t done = number * CHUNK, size = (size_t)wanted[i].length - done;
            if (size > CHUNK)
                size = CHUNK;
            uint32_t blocks = size ? (uint32_t)((size + BLOCK - 1) / BLOCK) : 1;
            Piece piece = {frame + wanted[i].offset + done, number, blocks, (uint32_t)size - (blocks - 1) * BLOCK,
                           CHUNK_START, CHUNK_END | (wanted[i].left == 1 ? ROOT : 0), next};
            add(size == CHUNK ? &whole : &rests, piece);
        }
    }
    finish(&whole);
    finish(&rests);
    for (; deepest > 1; deepest = (deepest + 1) / 2) {
        for (Py_ssize_t i = 0; i < count; i++)
            for (size_t pair = 0; pair < wanted[i].left / 2; pair++) {
                Piece piece = {(const uint8_t *)(wanted[i].values + 16 * pair), 0, 1, BLOCK,
                               PARENT, wanted[i].left == 2 ? ROOT : 0, wanted[i].values + 8 * pair};
                add(&whole, piece);
            }
        finish(&whole);
        for (Py_ssize_t i = 0; i < count; i++) {
            if (wanted[i].left > 1 && wanted[i].left % 2) /* an odd last node has no partner, and moves up to the next level */
                memcpy(wanted[i].values + 8 * (wanted[i].left / 2), wanted[i].values + 8 * (wanted[i].left - 1), 32);
            wanted[i].left = (wanted[i].left + 1) / 2;
        }
    }
    int right = 1;
    for (Py_ssize_t i = 0; i < count && right; i++)
        right = !memcmp(wanted[i].values, wanted[i].key, 32);
    free(values);
    return right;
}

static void *(*create)(void);
static size_t (*let_go)(void *);
static size_t (*decompress)(void *, void *, size_t, const void *, size_t);
static unsigned long long (*size_of)(const void *, size_t);
static void *idle[IDLE];
static int idle_count;

static PyObject *use(PyObject *self, PyObject *arguments)
{
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "s", &path))
        return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        Py_RETURN_FALSE;
    create = (void *(*)(void))dlsym(library, "ZSTD_createDCtx");
    let_go = (size_t (*)(void *))dlsym(library, "ZSTD_freeDCtx");
    decompress = (size_t (*)(void *, void *, size_t, const void *, size_t))dlsym(library, "ZSTD_decompressDCtx");
    size_of = (unsigned long long (*)(const void *, size_t))dlsym(library, "ZSTD_getFrameContentSize");
#ifdef __GLIBC__
    /* Frames are megabytes large: keep up to 16 MB of freed memory for the next one. */
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
#endif
    return PyBool_FromLong(create && let_go && decompress && size_of);
}

/* Return the wanted contents of the frame, from a list of (number, place); NULL with an exception set. */
static Wanted *wanted_of(PyObject *list, PyObject *keys, Py_ssize_t count)
{
    Wanted *wanted = calloc((size_t)(count ? count : 1), sizeof(Wanted));
    if (!wanted)
        PyErr_NoMemory();
    for (Py_ssize_t i = 0; wanted && i < count; i++) {
        PyObject *pair = PyList_GetItem(list, i), *number = pair ? PyTuple_GetItem(pair, 0) : NULL;
        PyObject *place = number ? PyTuple_GetItem(pair, 1) : NULL;
        PyObject *offset = place ? PyTuple_GetItem(place, 3) : NULL, *length = place ? PyTuple_GetItem(place, 4) : NULL;
        char *key;
        Py_ssize_t size = 0;
        if (offset && length) {
            wanted[i].offset = PyLong_AsSsize_t(offset);
            wanted[i].length = PyLong_AsSsize_t(length);
            PyObject *found = PyErr_Occurred() ? NULL : PyList_GetItem(keys, PyLong_AsSsize_t(number));
            if (found && !PyBytes_AsStringAndSize(found, &key, &size))
                wanted[i].key = (const uint8_t *)key;
        }
        if (!PyErr_Occurred() && (size != 32 || wanted[i].offset < 0 || wanted[i].length < 0))
            PyErr_SetString(PyExc_ValueError, "invalid place or digest");
        if (PyErr_Occurred()) {
            free(wanted);
            return NULL;
        }
    }
    return wanted;
}

static PyObject *parts_of(PyObject *list, const Wanted *wanted, Py_ssize_t count)
{
    PyObject *parts = PyList_New(count);
    for (Py_ssize_t i = 0; parts && i < count; i++) {
        PyObject *part = Py_BuildValue("(Onn)", PyTuple_GetItem(PyList_GetItem(list, i), 0), wanted[i].offset, wanted[i].length);
        if (!part || PyList_SetItem(parts, i, part))
            Py_CLEAR(parts);
    }
    return parts;
}

/* Read a frame as stored; 0 if the file ends before it. */
static int read_all(int fd, char *stored, Py_ssize_t size, long long offset)
{
    while (size > 0) {
        ssize_t done = pread(fd, stored, (size_t)size, (off_t)offset);
        if (done == 0 || (done < 0 && errno != EINTR))
            return 0;
        if (done > 0) {
            stored += done;
            size -= done;
            offset += done;
        }
    }
    return 1;
}

/* Decompress a frame and check its contents. Returns a new object; NULL if anything is wrong, with or without an exception set. */
static PyObject *unpacked(const char *stored, size_t size, unsigned long long most, Wanted *wanted, Py_ssize_t count)
{
    unsigned long long full = size_of(stored + 1, size - 1); /* the two largest values mean: size unknown, and not a frame */
    int right = stored[0] == ZSTD && full <= most && full <= PY_SSIZE_T_MAX;
    for (Py_ssize_t i = 0; i < count && right; i++)
        right = (unsigned long long)wanted[i].offset <= full
            && (unsigned long long)wanted[i].length <= full - (unsigned long long)wanted[i].offset;
    void *inflater = !right ? NULL : idle_count ? idle[--idle_count] : create();
    PyObject *frame = inflater ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)full) : NULL;
    if (frame) {
        char *data = PyBytes_AsString(frame);
        Py_BEGIN_ALLOW_THREADS
        right = decompress(inflater, data, (size_t)full, stored + 1, size - 1) == full
            && are_right((const uint8_t *)data, wanted, count) == 1;
        Py_END_ALLOW_THREADS
        if (!right)
            Py_CLEAR(frame);
    }
    if (inflater && idle_count < IDLE)
        idle[idle_count++] = inflater;
    else if (inflater)
        let_go(inflater);
    return frame;
}

static PyObject *unpack(PyObject *self, PyObject *arguments)
{
    int fd, is_read = 0;
    long long offset;
    Py_ssize_t size;
    unsigned long long most;
    PyObject *list, *keys, *frame = NULL, *parts, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iLnKO!O!", &fd, &offset, &size, &most, &PyList_Type, &list, &PyList_Type, &keys))
        return NULL;
    if (!create || !let_go || !decompress || !size_of || size < 2 || (unsigned long long)size > most)
        Py_RETURN_NONE;
    Py_ssize_t count = PyList_Size(list);
    Wanted *wanted = wanted_of(list, keys, count);
    char *stored = wanted ? malloc((size_t)size) : NULL;
    if (stored) {
        Py_BEGIN_ALLOW_THREADS
        is_read = read_all(fd, stored, size, offset);
        Py_END_ALLOW_THREADS
    }
    if (is_read)
        frame = unpacked(stored, (size_t)size, most, wanted, count);
    if (frame && (parts = parts_of(list, wanted, count))) {
        result = PyTuple_Pack(2, frame, parts);
        Py_DECREF(parts);
    }
    Py_XDECREF(frame);
    free(stored);
    free(wanted);
    if (!result && !PyErr_Occurred())
        Py_RETURN_NONE;
    return result;
}

static PyObject *check(PyObject *self, PyObject *arguments)
{
    const char *data;
    Py_ssize_t size;
    int most, right = 0;
    PyObject *list, *keys;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y#O!O!i", &data, &size, &PyList_Type, &list, &PyList_Type, &keys, &most))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    Wanted *wanted = wanted_of(list, keys, count);
    if (!wanted)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (wanted[i].offset > size || wanted[i].length > size - wanted[i].offset)
            PyErr_SetString(PyExc_ValueError, "content out of range");
    if (!PyErr_Occurred()) {
        choose_lanes(most);
        right = are_right((const uint8_t *)data, wanted, count);
        choose_lanes(MOST_LANES);
    }
    free(wanted);
    return PyErr_Occurred() ? NULL : right < 0 ? PyErr_NoMemory() : PyBool_FromLong(right);
}

static PyMethodDef methods[] = {
    {"use", use, METH_VARARGS, "use(path): use Zstandard from this compiled module; returns whether it has the functions needed"},
    {"unpack", unpack, METH_VARARGS,
     "unpack(file, offset, stored, most, [(number, place)], keys) -> (frame, [(number, offset, length)]); None if anything is wrong"},
    {"check", check, METH_VARARGS,
     "check(frame, [(number, place)], keys, lanes) -> whether all digests match; uses at most this many lanes"},
    {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_unpack", BUILT_FROM, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__unpack(void)
{
    const uint16_t one = 1;
    if (!*(const uint8_t *)&one) {
        PyErr_SetString(PyExc_ImportError, "this module needs a little-endian machine");
        return NULL;
    }
    choose_lanes(MOST_LANES);
    return PyModule_Create(&module);
}
