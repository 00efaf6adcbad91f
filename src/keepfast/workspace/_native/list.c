/* Lists changed folders in parallel: the same result as directory.py, which lists one after another, without a Python object
   for each unchanged name. The result is None for a folder that could not be listed without errors; Python then lists it. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "cache.h"
#include "seen.h"

#ifndef O_NOATIME
#define O_NOATIME 0
#endif
#define LONG 3800
#define MOST_THREADS 8
#define UNKNOWN UINT32_MAX
enum { OTHER, FOLDER, HIDDEN, KNOWN };
/* HIDDEN: the entry exists, but its stat failed. KNOWN: only the number of a name that is always reported, whether it exists or not. */

typedef struct {
    int kind;
    uint32_t number; /* in the cache; UNKNOWN if it is not there */
    struct stat seen;
} Found;

typedef struct {
    const char *path, *name; /* the folder's path, and the name of its first file */
    uint32_t first, count;   /* its files in the cache */
    int well;
    struct stat seen;
    char *found; /* new and changed entries: each a Found followed by its name */
    size_t length, room;
    uint32_t *runs; /* unchanged files: pairs of first number and the one after the last */
    size_t n_runs;
} Folder;

typedef struct {
    int root;
    const uint32_t *changed; /* files, in ascending order */
    size_t n_changed;
    const char *apart; /* names that are always reported, as are all that begin with a dot */
    size_t apart_bytes;
    Folder *folders;
    size_t n_folders, next;
} Work;

static uint32_t hash(const char *name)
{
    uint32_t h = 2166136261u;
    while (*name) h = (h ^ (unsigned char)*name++) * 16777619u;
    return h ^ h >> 15;
}

static int is_apart(const Work *w, const char *name)
{
    if (*name == '.') return 1;
    for (const char *one = w->apart, *end = one + w->apart_bytes; one < end; one += strlen(one) + 1)
        if (!strcmp(one, name)) return 1;
    return 0;
}

/* Return the index of the first changed file with this number or a higher one. */
static size_t lower(const Work *w, uint32_t file)
{
    size_t low = 0, high = w->n_changed;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (w->changed[middle] < file) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int add(Folder *f, const Found *one, const char *name)
{
    size_t bytes = strlen(name) + 1;
    if (f->length + sizeof *one + bytes > f->room) {
        size_t room = 2 * f->room + sizeof *one + bytes + 512;
        char *more = realloc(f->found, room);
        if (!more) return 0;
        f->found = more;
        f->room = room;
    }
    memcpy(f->found + f->length, one, sizeof *one);
    memcpy(f->found + f->length + sizeof *one, name, bytes);
    f->length += sizeof *one + bytes;
    return 1;
}

/* Stat the entry; false if it no longer exists. */
static int look(int fd, const struct dirent *entry, Found *one)
{
    one->kind = entry->d_type == DT_DIR ? FOLDER : OTHER;
    if (one->kind == FOLDER) return 1;
    if (fstatat(fd, entry->d_name, &one->seen, AT_SYMLINK_NOFOLLOW)) {
        one->kind = HIDDEN;
        return errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != ESTALE;
    }
    if (entry->d_type == DT_UNKNOWN && S_ISDIR(one->seen.st_mode)) one->kind = FOLDER;
    return 1;
}

/* Build a hash table of the known names. `names` has room for each; `table` for twice as many numbers, stored plus one (0: empty). */
static void learn(const Folder *f, const char **names, uint32_t *table, uint32_t mask)
{
    const char *name = f->name;
    for (uint32_t i = 0; i < f->count; i++, name += strlen(name) + 1) {
        uint32_t at = hash(name) & mask;
        names[i] = name;
        while (table[at]) at = (at + 1) & mask;
        table[at] = i + 1;
    }
}

static uint32_t find(const char *name, const char **names, const uint32_t *table, uint32_t mask)
{
    for (uint32_t at = hash(name) & mask; table[at]; at = (at + 1) & mask)
        if (!strcmp(names[table[at] - 1], name)) return table[at] - 1;
    return UNKNOWN;
}

/* Read the names of an open folder. `kept`, for each known file: 0 changed, 1 unchanged if it exists, 2 exists and is unchanged. */
static int read_names(const Work *w, Folder *f, DIR *stream, const char **names, const uint32_t *table, uint32_t mask,
                      unsigned char *kept)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) return !errno;
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        uint32_t at = find(name, names, table, mask);
        Found one = {.number = at == UNKNOWN ? UNKNOWN : f->first + at};
        if (at != UNKNOWN && kept[at] && !is_apart(w, name)) kept[at] = 2;
        else if (look(dirfd(stream), entry, &one) && !add(f, &one, name)) return 0;
    }
}

static int note_known(const Work *w, Folder *f, const char **names, const unsigned char *kept)
{
    size_t runs = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        runs += kept[i] == 2 && (!i || kept[i - 1] != 2);
        if (is_apart(w, names[i]) && !add(f, &(Found){.kind = KNOWN, .number = f->first + i}, names[i])) return 0;
    }
    f->runs = malloc(8 * runs + 1);
    if (!f->runs) return 0;
    for (uint32_t i = 0; i < f->count; i++) {
        if (kept[i] != 2) continue;
        if (!i || kept[i - 1] != 2) f->runs[f->n_runs++] = f->first + i;
        if (i + 1 == f->count || kept[i + 1] != 2) f->runs[f->n_runs++] = f->first + i + 1;
    }
    return 1;
}

static int list_one(const Work *w, Folder *f)
{
    if (strlen(f->path) >= LONG) return 0;
    const char *path = *f->path ? f->path : ".";
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, fd = openat(w->root, path, flags | O_NOATIME);
    if (fd < 0 && errno == EPERM) fd = openat(w->root, path, flags); /* only the owner may use O_NOATIME */
    if (fd < 0) return 0;
    DIR *stream = fstat(fd, &f->seen) ? NULL : fdopendir(fd);
    if (!stream) {
        close(fd);
        return 0;
    }
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)f->count && slots < 1u << 31) slots *= 2;
    const char **names = malloc(sizeof *names * f->count + 1);
    uint32_t *table = calloc(slots, 4);
    unsigned char *kept = malloc((size_t)f->count + 1);
    int well = names && table && kept && slots > f->count;
    if (well) {
        learn(f, names, table, slots - 1);
        memset(kept, 1, f->count);
        for (size_t i = lower(w, f->first); i < w->n_changed && w->changed[i] < f->first + f->count; i++)
            kept[w->changed[i] - f->first] = 0;
        well = read_names(w, f, stream, names, table, slots - 1, kept) && note_known(w, f, names, kept);
    }
    free(kept);
    free(table);
    free(names);
    closedir(stream);
    return well;
}

static void *run(void *argument)
{
    Work *w = argument;
    size_t at;
    while ((at = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < w->n_folders)
        w->folders[at].well = list_one(w, &w->folders[at]);
    return NULL;
}

/* Find these folders in the cache; false if a number is not a folder's, or the numbers are not ascending. */
static int locate(const Layout *l, const uint32_t *wanted, size_t n, Folder *out)
{
    const char *name = l->names, *path = l->paths;
    int64_t file = 0, folder = 0;
    for (size_t i = 0; i < n; i++) {
        if (wanted[i] < folder || wanted[i] >= l->folders) return 0;
        for (; folder < wanted[i]; folder++) {
            for (int64_t k = 0; k < l->count[folder]; k++) name += strlen(name) + 1;
            file += l->count[folder];
            path += strlen(path) + 1;
        }
        if (i && wanted[i] == wanted[i - 1]) return 0;
        out[i] = (Folder){.path = path, .name = name, .first = (uint32_t)file, .count = (uint32_t)l->count[folder]};
    }
    return 1;
}

static void list_all(Work *w, int threads)
{
    pthread_t ids[MOST_THREADS];
    int started = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    while (started + 1 < threads && (size_t)started + 1 < w->n_folders && !pthread_create(&ids[started], NULL, run, w))
        started++;
    run(w);
    while (started) pthread_join(ids[--started], NULL);
}

/* Append (name, is a folder, stat of a file) to the entries, and store the number of a known file in `known`. */
static int tell_one(const Found *one, const char *text, PyObject *entries, PyObject *known)
{
    PyObject *name = PyBytes_FromString(text), *seen = NULL, *row = NULL, *number = NULL;
    int well = name != NULL;
    if (well && one->kind != KNOWN) {
        seen = one->kind == OTHER ? as_seen(&one->seen) : Py_NewRef(Py_None);
        row = seen ? PyTuple_Pack(3, name, one->kind == FOLDER ? Py_True : Py_False, seen) : NULL;
        well = row && !PyList_Append(entries, row);
    }
    if (well && one->number != UNKNOWN) {
        number = PyLong_FromUnsignedLong(one->number);
        well = number && !PyDict_SetItem(known, name, number);
    }
    Py_XDECREF(number);
    Py_XDECREF(row);
    Py_XDECREF(seen);
    Py_XDECREF(name);
    return well;
}

/* Return (stat of the folder, entries, numbers of known files, runs). */
static PyObject *tell(const Folder *f)
{
    PyObject *entries = PyList_New(0), *known = PyDict_New(), *runs = PyList_New((Py_ssize_t)f->n_runs);
    PyObject *seen = as_seen(&f->seen), *result = NULL;
    int well = entries && known && runs && seen;
    for (size_t at = 0; well && at < f->length;) {
        Found one;
        memcpy(&one, f->found + at, sizeof one);
        const char *name = f->found + at + sizeof one;
        well = tell_one(&one, name, entries, known);
        at += sizeof one + strlen(name) + 1;
    }
    for (size_t i = 0; well && i < f->n_runs; i++) {
        PyObject *number = PyLong_FromUnsignedLong(f->runs[i]);
        well = number && !PyList_SetItem(runs, (Py_ssize_t)i, number);
    }
    if (well && !PyList_Sort(entries)) result = PyTuple_Pack(4, seen, entries, known, runs);
    Py_XDECREF(seen);
    Py_XDECREF(entries);
    Py_XDECREF(known);
    Py_XDECREF(runs);
    return result;
}

static PyObject *tell_all(const Work *w)
{
    PyObject *result = PyList_New((Py_ssize_t)w->n_folders);
    for (size_t i = 0; result && i < w->n_folders; i++) {
        PyObject *one = w->folders[i].well ? tell(&w->folders[i]) : Py_NewRef(Py_None);
        if (!one || PyList_SetItem(result, (Py_ssize_t)i, one)) {
            Py_DECREF(result);
            return NULL;
        }
    }
    return result;
}

PyObject *list_changed(PyObject *self, PyObject *arguments)
{
    Py_buffer raw, files, folders, apart;
    int threads;
    Layout l;
    Work w = {0};
    PyObject *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*iiy*y*y*", &raw, &w.root, &threads, &files, &folders, &apart)) return NULL;
    w.changed = files.buf;
    w.n_changed = (size_t)files.len / 4;
    w.apart = apart.buf;
    w.apart_bytes = (size_t)apart.len;
    w.n_folders = (size_t)folders.len / 4;
    w.folders = calloc(w.n_folders + 1, sizeof *w.folders);
    if (!w.folders)
        PyErr_NoMemory();
    else if (!make_seen())
        ; /* an exception is set */
    else if (!lay_out(raw.buf, raw.len, &l) || (uintptr_t)files.buf % 4 || (uintptr_t)folders.buf % 4
             || (apart.len && w.apart[apart.len - 1]) || !rises(w.changed, w.n_changed)
             || !locate(&l, folders.buf, w.n_folders, w.folders))
        PyErr_SetString(PyExc_ValueError, "the stat cache is malformed, or has no such folders");
    else {
        Py_BEGIN_ALLOW_THREADS
        list_all(&w, threads);
        Py_END_ALLOW_THREADS
        result = tell_all(&w);
    }
    for (size_t i = 0; w.folders && i < w.n_folders; i++) {
        free(w.folders[i].found);
        free(w.folders[i].runs);
    }
    free(w.folders);
    PyBuffer_Release(&raw);
    PyBuffer_Release(&files);
    PyBuffer_Release(&folders);
    PyBuffer_Release(&apart);
    return result;
}
