/* The check of all known files and folders against the stat cache: the same answer as cache._check_in_python,
   without a Python object per file. The layout it reads is described in cache.py. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* otherwise 32-bit systems cannot stat a large file */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_PATH
#define O_PATH O_RDONLY
#endif
#ifdef __APPLE__
#define CTIME(s) (s).st_ctimespec
#define MTIME(s) (s).st_mtimespec
#else
#define CTIME(s) (s).st_ctim
#define MTIME(s) (s).st_mtim
#endif
#define MOST_THREADS 8

typedef struct {
    int root;
    const int64_t *ctime, *size, *inode, *folder_mtime, *folder_ctime, *folder_inode, *count;
    const char *name, *folder;      /* first name and first folder path of this part */
    int64_t first_file, first_folder, end_folder;
    uint32_t *files, *folders;      /* what differs */
    size_t n_files, n_folders;
} Part;

/* Unsigned, because somebody may have set a time that does not fit: it wraps, as it does in cache.py. */
static int64_t ns(struct timespec t) { return (int64_t)((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec); }

static void *run(void *argument)
{
    Part *p = argument;
    struct stat s;
    const char *name = p->name, *folder = p->folder;
    int64_t file = p->first_file;
    for (int64_t i = p->first_folder; i < p->end_folder; i++) {
        int64_t end = file + p->count[i];
        int fd = openat(p->root, *folder ? folder : ".", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) {
            p->folders[p->n_folders++] = (uint32_t)i;
            for (; file < end; file++) { /* nobody has looked at them */
                p->files[p->n_files++] = (uint32_t)file;
                name += strlen(name) + 1;
            }
        } else {
            if (fstat(fd, &s) || ns(MTIME(s)) != p->folder_mtime[i] || ns(CTIME(s)) != p->folder_ctime[i]
                || (int64_t)s.st_ino != p->folder_inode[i])
                p->folders[p->n_folders++] = (uint32_t)i;
            for (; file < end; file++) {
                if (fstatat(fd, name, &s, AT_SYMLINK_NOFOLLOW) || ns(CTIME(s)) != p->ctime[file]
                    || (int64_t)s.st_size != p->size[file] || (int64_t)s.st_ino != p->inode[file])
                    p->files[p->n_files++] = (uint32_t)file;
                name += strlen(name) + 1;
            }
            close(fd);
        }
        folder += strlen(folder) + 1;
    }
    return NULL;
}

/* The texts end in NUL and hold exactly as many strings as the header says; without that no pointer may walk them. */
static int sound(const char *text, int64_t bytes, int64_t strings)
{
    if (bytes < 0 || (bytes && text[bytes - 1])) return 0;
    for (int64_t i = 0; i < bytes; i++)
        if (!text[i]) strings--;
    return strings == 0;
}

static PyObject *check(PyObject *self, PyObject *arguments)
{
    Py_buffer view;
    int root, threads;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "y*ii", &view, &root, &threads)) return NULL;
    const char *raw = view.buf;
    int64_t head[6], files, folders, total = 0;
    uint32_t padded;
    PyObject *result = NULL;
    uint32_t *out = NULL;
    if (view.len < 64) goto malformed;
    memcpy(head, raw + 16, sizeof head);
    memcpy(&padded, raw + 12, 4);
    files = head[0];
    folders = head[1];
    /* No number may be larger than the whole: sums of them cannot overflow then. */
    for (int i = 0; i < 5; i++)
        if (head[i] < 0 || head[i] > view.len) goto malformed;
    if (files > UINT32_MAX || folders > UINT32_MAX || padded % 8) goto malformed;
    int64_t columns = 64 + (int64_t)padded, texts = columns + 8 * (3 * files + 4 * folders);
    if (texts + head[2] + head[3] + head[4] != view.len) goto malformed;
    if (!sound(raw + texts, head[2], files) || !sound(raw + texts + head[2], head[3], folders)) goto malformed;
    if ((uintptr_t)(raw + columns) % 8) goto malformed; /* bytes objects are aligned; a slice of one may not be */
    const int64_t *column = (const int64_t *)(raw + columns);
    const int64_t *count = column + 3 * files + 3 * folders;
    for (int64_t i = 0; i < folders; i++) {
        if (count[i] < 0 || count[i] > files) goto malformed;
        total += count[i];
    }
    if (total != files) goto malformed;
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
    const char *name = raw + texts, *folder = name + head[2];
    int64_t file = 0, at = 0;
    for (int t = 0; t < threads; t++) {
        /* Parts of about equal work, where a folder counts as much as two files. */
        int64_t goal = (files + 2 * folders) * (t + 1) / threads;
        Part *p = &parts[t];
        *p = (Part){root, column, column + files, column + 2 * files, column + 3 * files, column + 3 * files + folders,
                    column + 3 * files + 2 * folders, count, name, folder, file, at, at, out + file,
                    out + files + at, 0, 0};
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

static PyMethodDef methods[] = {{"check", check, METH_VARARGS, "check(raw, root, threads) -> (files, folders)"}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_check", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__check(void) { return PyModule_Create(&module); }
