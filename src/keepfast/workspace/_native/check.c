/* Checks all known files and folders against the stat cache: the same result as plain_check.check,
   without a Python object per file. stat_cache.py describes the layout. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* otherwise 32-bit systems cannot stat a large file */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "cache.h"
#include "stat.h"

#ifndef O_PATH
#define O_PATH O_RDONLY
#endif
#define FEW 16
#define LONGEST 1024
/* Opening and closing a folder costs about as much as resolving its path for this many files. */
#define MOST_THREADS 8

typedef struct {
    int root;
    const Layout *known;
    const char *name, *folder;      /* first name and first folder path of this part */
    int64_t first_file, first_folder, end_folder;
    uint32_t *files, *folders;      /* what differs */
    size_t n_files, n_folders;
} Part;

/* Get the stat of a folder, and open it if it has enough files; false if the folder no longer exists. */
static int visit(const Part *p, const char *folder, int64_t files, int *fd, struct stat *s)
{
    if (*folder && files < FEW && strlen(folder) < LONGEST)
        return !fstatat(p->root, folder, s, AT_SYMLINK_NOFOLLOW) && S_ISDIR(s->st_mode);
    *fd = openat(p->root, *folder ? folder : ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *fd >= 0 && !fstat(*fd, s);
}

static void *run(void *argument)
{
    Part *p = argument;
    const Layout *k = p->known;
    struct stat s;
    const char *name = p->name, *folder = p->folder;
    char path[LONGEST + 1 + NAME_MAX + 1];
    int64_t file = p->first_file;
    for (int64_t i = p->first_folder; i < p->end_folder; i++) {
        int64_t end = file + k->count[i];
        int fd = -1;
        int there = visit(p, folder, k->count[i], &fd, &s);
        size_t length = strlen(folder);
        if (!there || ns(MTIME(s)) != k->folder_mtime[i] || ns(CTIME(s)) != k->folder_ctime[i]
            || (int64_t)s.st_ino != k->folder_inode[i])
            p->folders[p->n_folders++] = (uint32_t)i;
        if (there && fd < 0) {
            memcpy(path, folder, length);
            path[length] = '/';
        }
        for (; file < end; file++) {
            size_t bytes = strlen(name) + 1;
            const char *place = name;
            int from = fd;
            if (there && fd < 0 && bytes <= NAME_MAX + 1) {
                memcpy(path + length + 1, name, bytes);
                place = path;
                from = p->root;
            }
            /* If the folder no longer exists, its files count as changed. */
            if (!there || fstatat(from, place, &s, AT_SYMLINK_NOFOLLOW) || ns(CTIME(s)) != k->ctime[file]
                || (int64_t)s.st_size != k->size[file] || (int64_t)s.st_ino != k->inode[file])
                p->files[p->n_files++] = (uint32_t)file;
            name += bytes;
        }
        if (fd >= 0) close(fd);
        folder += length + 1;
    }
    return NULL;
}

static PyObject *check(PyObject *self, PyObject *arguments)
{
    Py_buffer view;
    int root, threads;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*ii", &view, &root, &threads)) return NULL;
    const char *raw = view.buf;
    Layout l;
    PyObject *result = NULL;
    uint32_t *out = NULL;
    if (!lay_out(raw, view.len, &l)) goto malformed;
    const int64_t files = l.files, folders = l.folders, *count = l.count;
    out = malloc(4 * (size_t)(files + folders) + 4);
    if (!out) {
        PyErr_NoMemory();
        goto done;
    }
    if (threads < 1) threads = 1;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    Part parts[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    int started[MOST_THREADS] = {0};
    size_t n_files = 0, n_folders = 0;
    Py_BEGIN_ALLOW_THREADS
    const char *name = l.names, *folder = l.paths;
    int64_t file = 0, at = 0;
    for (int t = 0; t < threads; t++) {
        /* Split the work into about equal parts; a folder counts as two files. */
        int64_t goal = (files + 2 * folders) * (t + 1) / threads;
        Part *p = &parts[t];
        *p = (Part){root, &l, name, folder, file, at, at, out + file, out + files + at, 0, 0};
        while (at < folders && (t + 1 == threads || file + 2 * at < goal)) {
            for (int64_t k = 0; k < count[at]; k++) name += strlen(name) + 1;
            folder += strlen(folder) + 1;
            file += count[at++];
        }
        p->end_folder = at;
        if (t + 1 == threads || pthread_create(&ids[t], NULL, run, p)) run(p);
        else started[t] = 1;
    }
    for (int t = 0; t < threads; t++) {
        if (started[t]) pthread_join(ids[t], NULL);
        memmove(out + n_files, parts[t].files, 4 * parts[t].n_files);
        n_files += parts[t].n_files;
    }
    for (int t = 0; t < threads; t++) {
        memmove(out + files + n_folders, parts[t].folders, 4 * parts[t].n_folders);
        n_folders += parts[t].n_folders;
    }
    Py_END_ALLOW_THREADS
    result = Py_BuildValue("(y#y#)", (char *)out, (Py_ssize_t)(4 * n_files), (char *)(out + files),
                           (Py_ssize_t)(4 * n_folders));
    goto done;
malformed:
    PyErr_SetString(PyExc_ValueError, "the stat cache is malformed");
done:
    free(out);
    PyBuffer_Release(&view);
    return result;
}

/* Wait for the lock on an open file, as fcntl.flock does: importing fcntl costs as much as checking 200 files. */
static PyObject *lock(PyObject *self, PyObject *argument)
{
    int fd = PyObject_AsFileDescriptor(argument), failed;
    (void)self;
    if (fd < 0) return NULL;
    do {
        Py_BEGIN_ALLOW_THREADS
        failed = flock(fd, LOCK_EX);
        Py_END_ALLOW_THREADS
        if (failed && errno == EINTR && PyErr_CheckSignals()) return NULL;
    } while (failed && errno == EINTR);
    return failed ? PyErr_SetFromErrno(PyExc_OSError) : Py_NewRef(Py_None);
}

/* crc.c, list.c, pieces.c */
PyObject *crc32_of(PyObject *self, PyObject *argument);
PyObject *list_changed(PyObject *self, PyObject *arguments);
PyObject *join_pieces(PyObject *self, PyObject *arguments);
PyObject *offsets(PyObject *self, PyObject *arguments);

static PyMethodDef methods[] = {
    {"check", check, METH_VARARGS, "check(raw, root, threads) -> (files, folders)"},
    {"list_changed", list_changed, METH_VARARGS, "list_changed(raw, root, threads, files, folders, apart) -> the entries of each folder"},
    {"join_pieces", join_pieces, METH_VARARGS, "join_pieces(raw, columns, text, pieces) -> (columns, text)"},
    {"offsets", offsets, METH_VARARGS, "offsets(raw, files) -> offsets of their names"},
    {"crc32", crc32_of, METH_O, "crc32(bytes) -> number"},
    {"lock", lock, METH_O, "lock(fd)"},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_check", BUILT_FROM, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__check(void) { return PyModule_Create(&module); }
