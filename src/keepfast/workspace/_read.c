/* Reading a file as most are, by one call: regular, not large, as the scan saw it, and holding still. None for any other:
   read.py then reads it in its own way, and with it come all errors and all doubts. Both make the same rows.
   And reading the names in a folder, most of which are known: no Python object is made for what nobody has to look at. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* otherwise 32-bit systems cannot stat a large file */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/xattr.h>
#endif
#include "_seen.h"
#include "_stat.h"

#ifndef O_NOATIME
#define O_NOATIME 0
#endif

#define LARGE_PAGE ((size_t)2 << 20)
#define FIRST (5 * LARGE_PAGE)

typedef struct {
    long long ctime;
    unsigned long long inode;
    Py_ssize_t size;
    unsigned int owner, group;
} Expected;

static int is_as_expected(const struct stat *s, const Expected *e)
{
    return S_ISREG(s->st_mode) && s->st_size == e->size && s->st_ino == e->inode && fits(CTIME(*s))
           && ns(CTIME(*s)) == e->ctime && s->st_uid == e->owner && s->st_gid == e->group;
}

/* Return whether all went well; the stat is that of after the reading. */
static int take(int folder, const char *name, char *buffer, const Expected *e, struct stat *s)
{
    uid_t user = geteuid();
    /* O_NONBLOCK: a pipe put in the file's place must not stop us. O_NOATIME: to be read by us is no use of the file, and
       noting it would cost a write; only its owner may ask for that. */
    int quietly = !user || user == e->owner ? O_NOATIME : 0;
    int fd = openat(folder, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | quietly);
    if (fd < 0)
        return 0;
    int well = !fstat(fd, s) && is_as_expected(s, e) && read(fd, buffer, (size_t)e->size) == e->size && !fstat(fd, s)
               && is_as_expected(s, e) && fits(MTIME(*s));
#ifdef __linux__
    well = well && flistxattr(fd, NULL, 0) <= 0;
#endif
    close(fd);
    return well;
}

static PyObject *take_file(PyObject *self, PyObject *arguments)
{
    int folder, well;
    const char *name;
    Expected e;
    struct stat s;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iynLKII", &folder, &name, &e.size, &e.ctime, &e.inode, &e.owner, &e.group))
        return NULL;
    PyObject *content = PyBytes_FromStringAndSize(NULL, e.size);
    if (!content)
        return NULL;
    char *buffer = PyBytes_AsString(content);
    Py_BEGIN_ALLOW_THREADS
    well = take(folder, name, buffer, &e, &s);
    Py_END_ALLOW_THREADS
    if (!well) {
        Py_DECREF(content);
        Py_RETURN_NONE;
    }
    unsigned long long group = s.st_nlink > 1 ? (s.st_ino ^ (unsigned long long)s.st_dev << 48) & INT64_MAX : 0;
    int is_sparse = (long long)s.st_blocks * 512 < (long long)s.st_size;
    return Py_BuildValue("(NiiLK)", content, (int)(s.st_mode & 07777), is_sparse, (long long)ns(MTIME(s)), group);
}

/* One name: the number of a known one, or (name, is a folder, what is seen of a file). False with an error set. */
static int sort_out(int fd, const struct dirent *entry, PyObject *sure, PyObject *kept, PyObject *found)
{
    PyObject *name = PyBytes_FromString(entry->d_name), *seen = NULL, *row = NULL;
    struct stat s;
    int well = 0;
    if (!name)
        return 0;
    PyObject *number = PyDict_GetItemWithError(sure, name);
    if (number || PyErr_Occurred()) {
        well = number && !PyList_Append(kept, number);
        goto end;
    }
    int is_folder = entry->d_type == DT_DIR, failed = 0;
    if (!is_folder) {
        failed = fstatat(fd, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) ? errno : 0;
        is_folder = !failed && entry->d_type == DT_UNKNOWN && S_ISDIR(s.st_mode);
    }
    if (failed == ENOENT || failed == ENOTDIR || failed == ELOOP || failed == ESTALE) {
        well = 1; /* it has gone meanwhile */
        goto end;
    }
    seen = is_folder || failed ? Py_NewRef(Py_None) : as_seen(&s);
    row = seen ? PyTuple_Pack(3, name, is_folder ? Py_True : Py_False, seen) : NULL;
    well = row && !PyList_Append(found, row);
end:
    Py_XDECREF(row);
    Py_XDECREF(seen);
    Py_DECREF(name);
    return well;
}

static PyObject *listing(PyObject *self, PyObject *arguments)
{
    int folder;
    PyObject *sure, *result = NULL;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iO!", &folder, &PyDict_Type, &sure))
        return NULL;
    int fd = fcntl(folder, F_DUPFD_CLOEXEC, 0); /* closing the stream closes its descriptor */
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) {
        PyErr_SetFromErrno(PyExc_OSError);
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    PyObject *kept = PyList_New(0), *found = PyList_New(0);
    int well = kept && found;
    while (well) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (!entry) {
            if (errno)
                PyErr_SetFromErrno(PyExc_OSError);
            well = !PyErr_Occurred();
            break;
        }
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            well = sort_out(folder, entry, sure, kept, found);
    }
    closedir(stream);
    if (well)
        result = PyTuple_Pack(2, kept, found);
    Py_XDECREF(kept);
    Py_XDECREF(found);
    return result;
}

/* Contents and frames come and go by the megabyte. The allocator would give each back to the kernel, and get the next one page
   by page; at most 16 MB that nobody uses stay with us in place of that. What comes first is asked for in large pages, where the
   kernel has them: each of the small ones is a call into it, at the first touch. */
static PyObject *keep_memory(PyObject *self, PyObject *nothing)
{
    (void)self;
    (void)nothing;
#ifdef __GLIBC__
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
#ifdef MADV_HUGEPAGE
    mallopt(M_MMAP_THRESHOLD, 16 << 20);
    char *memory = malloc(FIRST);
    if (memory) {
        char *begin = (char *)(((uintptr_t)memory + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE);
        madvise(begin, (size_t)(memory + FIRST - begin) / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
        free(memory);
    }
#endif
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"take", take_file, METH_VARARGS,
     "take(folder, name, size, ctime, inode, uid, gid): (content, mode, is sparse, mtime, group), or None."},
    {"keep_memory", keep_memory, METH_NOARGS, "keep_memory(): what is freed is kept for the next one, within bounds."},
    {"listing", listing, METH_VARARGS,
     "listing(folder, sure): (values in sure of the names that are there, of each other one its name, whether it is a folder, "
     "and what is seen of a file)."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_read", BUILT_FROM, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__read(void)
{
    return make_seen() ? PyModule_Create(&module) : NULL;
}
