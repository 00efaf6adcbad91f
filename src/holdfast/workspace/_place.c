/* Many files at once, as a restore writes them, and the calls that Python does not have: the same as staging.py,
   apply.py and system.py do in Python, without a Python object per system call. Linux only; elsewhere it is not built. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OPENAT2 437
#define RENAMEAT2 SYS_renameat2
#define NOREPLACE 1
#define BENEATH (0x08 | 0x04 | 0x02) /* RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS */
#define LONGEST 4095

typedef struct {
    const char *name, *text; /* text: a file's content, or the path that it goes to */
    Py_ssize_t size;
    unsigned mode;
} Item;

/* Pointers into a list of tuples (name, text[, mode]); the list keeps them alive. NULL with an exception set. */
static Item *items_of(PyObject *list, Py_ssize_t *count, int with_mode)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "a list of tuples is wanted");
        return NULL;
    }
    *count = PyList_Size(list);
    Item *items = malloc((size_t)(*count ? *count : 1) * sizeof(Item));
    if (!items) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *tuple = PyList_GetItem(list, i);
        char *name, *text;
        if (!tuple || !PyTuple_Check(tuple) || PyTuple_Size(tuple) != 2 + with_mode) {
            PyErr_SetString(PyExc_TypeError, "a tuple of another length is wanted");
            goto failed;
        }
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 0), &name, NULL)
            || PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 1), &text, &items[i].size))
            goto failed;
        items[i].name = name;
        items[i].text = text;
        items[i].mode = 0;
        if (with_mode) {
            items[i].mode = (unsigned)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, 2));
            if (PyErr_Occurred())
                goto failed;
        }
    }
    return items;
failed:
    free(items);
    return NULL;
}

static int write_one(int folder, const Item *item)
{
    int fd = openat(folder, item->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600), error = 0;
    if (fd < 0)
        return errno;
    const char *at = item->text;
    Py_ssize_t left = item->size;
    while (left > 0 && !error) {
        ssize_t done = write(fd, at, (size_t)left);
        if (done >= 0) {
            at += done;
            left -= done;
        } else if (errno != EINTR)
            error = errno;
    }
    if (!error && fchmod(fd, item->mode))
        error = errno;
    if (close(fd) && !error && errno != EINTR)
        error = errno;
    return error;
}

static PyObject *failure(int error, const char *name)
{
    errno = error;
    PyObject *path = PyBytes_FromString(name);
    if (path) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
        Py_DECREF(path);
    }
    return NULL;
}

static PyObject *stage(PyObject *self, PyObject *arguments)
{
    int folder, error = 0;
    PyObject *list;
    Py_ssize_t count, i = 0;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iO", &folder, &list))
        return NULL;
    Item *items = items_of(list, &count, 1);
    if (!items)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (; i < count && !error; i++)
        error = write_one(folder, &items[i]);
    Py_END_ALLOW_THREADS
    const char *name = error ? items[i - 1].name : NULL;
    free(items);
    if (error)
        return failure(error, name);
    Py_RETURN_NONE;
}

static int open_below(int root, const char *path)
{
    struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, BENEATH};
    return (int)syscall(OPENAT2, root, path, &how, sizeof how);
}

static int place_one(int staging, int root, const Item *item)
{
    char folder[LONGEST + 1];
    const char *last = strrchr(item->text, '/');
    int parent = root, error = 0;
    if (last) {
        if (last - item->text > LONGEST || last == item->text)
            return ENAMETOOLONG;
        memcpy(folder, item->text, (size_t)(last - item->text));
        folder[last - item->text] = 0;
        /* Opened anew for every file: a folder may be moved away, or be a link by now. */
        parent = open_below(root, folder);
        if (parent < 0)
            return errno;
    }
    if (syscall(RENAMEAT2, staging, item->name, parent, last ? last + 1 : item->text, NOREPLACE))
        error = errno;
    if (parent != root)
        close(parent);
    return error;
}

static PyObject *place(PyObject *self, PyObject *arguments)
{
    int staging, root;
    PyObject *list, *failed = NULL;
    Py_ssize_t count;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iiO", &staging, &root, &list))
        return NULL;
    Item *items = items_of(list, &count, 0);
    if (!items)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t i = 0; i < count; i++)
        items[i].mode = (unsigned)place_one(staging, root, &items[i]);
    Py_END_ALLOW_THREADS
    failed = PyList_New(0);
    for (Py_ssize_t i = 0; failed && i < count; i++) {
        if (!items[i].mode)
            continue;
        PyObject *number = PyLong_FromSsize_t(i);
        if (!number || PyList_Append(failed, number)) {
            Py_XDECREF(number);
            Py_CLEAR(failed);
            break;
        }
        Py_DECREF(number);
    }
    free(items);
    return failed;
}

static PyObject *rename_with(PyObject *self, PyObject *arguments)
{
    int from, to;
    unsigned flags;
    const char *old, *new;
    long done;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iyiyI", &from, &old, &to, &new, &flags))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    done = syscall(RENAMEAT2, from, old, to, new, flags);
    Py_END_ALLOW_THREADS
    return done ? failure(errno, new) : (Py_INCREF(Py_None), Py_None);
}

static PyObject *open_folder(PyObject *self, PyObject *arguments)
{
    int root, fd;
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "iy", &root, &path))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    fd = open_below(root, path);
    Py_END_ALLOW_THREADS
    return fd < 0 ? failure(errno, path) : PyLong_FromLong(fd);
}

static PyObject *sync_all(PyObject *self, PyObject *arguments)
{
    int fd, done;
    (void)self;
    if (!PyArg_ParseTuple(arguments, "i", &fd))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    done = syncfs(fd);
    Py_END_ALLOW_THREADS
    return done ? PyErr_SetFromErrno(PyExc_OSError) : (Py_INCREF(Py_None), Py_None);
}

static PyMethodDef methods[] = {
    {"stage", stage, METH_VARARGS, "stage(folder, [(name, content, mode)]): new files; OSError names the first that failed"},
    {"place", place, METH_VARARGS, "place(staging, root, [(name, path)]) -> numbers of those that could not be put there"},
    {"rename", rename_with, METH_VARARGS, "rename(from_folder, old, to_folder, new, flags)"},
    {"open_folder", open_folder, METH_VARARGS, "open_folder(root, path) -> descriptor; no part may be a link"},
    {"syncfs", sync_all, METH_VARARGS, "syncfs(descriptor)"},
    {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_place", NULL, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__place(void) { return PyModule_Create(&module); }
