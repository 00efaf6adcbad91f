/* Writes the many files of a restore at once, and wraps system calls missing in Python: the same results as staged_files.py,
   placement.py and system_calls.py, without a Python object per system call. Built on Linux only. */
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
    const char *name, *text; /* text: the file's content, or its destination path */
    Py_ssize_t size;
    unsigned mode;
    int timed;
    long long time;
} Item;

/* One item from a tuple (name, text[, mode[, offset, length[, mtime]]]); -1 with an exception set. */
static int item_of(PyObject *tuple, Py_ssize_t least, Py_ssize_t most, Item *item)
{
    char *name, *text;
    Py_ssize_t length = tuple && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (length < least || length > most) {
        PyErr_SetString(PyExc_TypeError, "wrong tuple length");
        return -1;
    }
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 0), &name, NULL)
        || PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, 1), &text, &item->size))
        return -1;
    item->name = name;
    item->text = text;
    item->mode = length > 2 ? (unsigned)PyLong_AsUnsignedLong(PyTuple_GetItem(tuple, 2)) : 0;
    if (length > 4) {
        Py_ssize_t offset = PyLong_AsSsize_t(PyTuple_GetItem(tuple, 3)), size = PyLong_AsSsize_t(PyTuple_GetItem(tuple, 4));
        if (!PyErr_Occurred() && (offset < 0 || size < 0 || offset > item->size || size > item->size - offset))
            PyErr_SetString(PyExc_ValueError, "content out of range");
        item->text += offset;
        item->size = size;
    }
    item->timed = length > 5;
    item->time = item->timed ? PyLong_AsLongLong(PyTuple_GetItem(tuple, 5)) : 0;
    return PyErr_Occurred() ? -1 : 0;
}

/* Pointers into a list of tuples; the list keeps them alive. NULL with an exception set. */
static Item *items_of(PyObject *list, Py_ssize_t *count, Py_ssize_t least, Py_ssize_t most)
{
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "expected a list of tuples");
        return NULL;
    }
    *count = PyList_Size(list);
    Item *items = malloc((size_t)(*count ? *count : 1) * sizeof(Item));
    if (!items) {
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < *count; i++)
        if (item_of(PyList_GetItem(list, i), least, most, &items[i])) {
            free(items);
            return NULL;
        }
    return items;
}

/* `open_below` for kernels without openat2: opens one path component at a time, and refuses links. */
static int walk_below(int root, char *path)
{
    int at = root;
    for (char *part = path, *end; part; part = end) {
        end = strchr(part, '/');
        if (end)
            *end++ = 0;
        int next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), error = errno;
        if (at != root)
            close(at);
        if (next < 0) {
            errno = error;
            return -1;
        }
        at = next;
    }
    return at;
}

static int open_below(int root, const char *path)
{
    struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, BENEATH};
    return (int)syscall(OPENAT2, root, path, &how, sizeof how);
}

/* The folder that was opened last: files come folder by folder. `sure` is a mode that a new file in it is known to get as
   requested, so the next file gets it too: nobody else writes to the folder. */
typedef struct {
    int top, fd;
    unsigned sure;
    char path[LONGEST + 1];
} Opened;
#define UNSURE 010000
#define PLAIN 0777

static void let_go(Opened *opened)
{
    if (opened->fd >= 0)
        close(opened->fd);
    opened->fd = -1;
    opened->sure = UNSURE;
}

/* Return a descriptor of the folder that contains `path`, and set `last` to the last component; -1 with errno set. */
static int folder_of(Opened *opened, const char *path, const char **last)
{
    const char *slash = strrchr(path, '/');
    *last = slash ? slash + 1 : path;
    if (!slash)
        return opened->top;
    size_t length = (size_t)(slash - path);
    if (opened->fd >= 0 && strlen(opened->path) == length && !memcmp(opened->path, path, length))
        return opened->fd;
    let_go(opened);
    if (length > LONGEST || !length) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(opened->path, path, length);
    opened->path[length] = 0;
    opened->fd = open_below(opened->top, opened->path);
    if (opened->fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == EAGAIN)) {
        opened->fd = walk_below(opened->top, opened->path);
        memcpy(opened->path, path, length);
    }
    return opened->fd;
}

static int write_one(Opened *opened, const Item *item)
{
    const char *last;
    int folder = folder_of(opened, item->name, &last), error = 0;
    if (folder < 0)
        return errno;
    int fd = openat(folder, last, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, item->mode & 07777);
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
    /* A new file may not get the requested mode (umask, default ACL), and writing clears some bits. */
    struct stat seen;
    if (!error && (folder == opened->top || item->mode != opened->sure)) {
        if (fstat(fd, &seen) || ((seen.st_mode & 07777) != item->mode && fchmod(fd, item->mode)))
            error = errno;
        else if (folder != opened->top && (seen.st_mode & 07777) == item->mode && !(item->mode & ~PLAIN))
            opened->sure = item->mode;
    }
    if (!error && item->timed) {
        long long seconds = item->time / 1000000000, rest = item->time % 1000000000;
        struct timespec time = {seconds - (rest < 0), rest < 0 ? rest + 1000000000 : rest}, times[2] = {time, time};
        if (futimens(fd, times))
            error = errno;
    }
    if (close(fd) && !error && errno != EINTR)
        error = errno;
    return error;
}

static int make_one(Opened *opened, const Item *item)
{
    const char *last;
    struct stat seen;
    int folder = folder_of(opened, item->name, &last), error = 0;
    if (folder < 0 || mkdirat(folder, last, item->mode & 07777)
        || fstatat(folder, last, &seen, AT_SYMLINK_NOFOLLOW))
        return errno;
    if (S_ISDIR(seen.st_mode) && (seen.st_mode & 07777) == item->mode)
        return 0;
    int fd = openat(folder, last, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno;
    if (fchmod(fd, item->mode))
        error = errno;
    close(fd);
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

/* Call a function for every item of a list, without the interpreter's lock; OSError names the first item that failed. */
static PyObject *each(PyObject *arguments, Py_ssize_t least, Py_ssize_t most, int (*act)(Opened *, const Item *))
{
    Opened opened = {-1, -1, UNSURE, ""};
    int error = 0;
    PyObject *list;
    Py_ssize_t count, i = 0;
    if (!PyArg_ParseTuple(arguments, "iO", &opened.top, &list))
        return NULL;
    Item *items = items_of(list, &count, least, most);
    if (!items)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (; i < count && !error; i++)
        error = act(&opened, &items[i]);
    let_go(&opened);
    Py_END_ALLOW_THREADS
    const char *name = error ? items[i - 1].name : NULL;
    free(items);
    if (error)
        return failure(error, name);
    Py_RETURN_NONE;
}

static PyObject *stage(PyObject *self, PyObject *arguments)
{
    (void)self;
    return each(arguments, 5, 6, write_one);
}

static PyObject *make(PyObject *self, PyObject *arguments)
{
    (void)self;
    return each(arguments, 3, 3, make_one);
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
        /* The folder is opened again for every file, since it may have been moved or replaced by a link. */
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
    Item *items = items_of(list, &count, 2, 2);
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
    {"stage", stage, METH_VARARGS, "stage(folder, [(path, bytes, mode, offset, length[, mtime_ns])]): new files below; no part may be a link"},
    {"make", make, METH_VARARGS, "make(folder, [(path, b\"\", mode)]): new folders below; no part may be a link"},
    {"place", place, METH_VARARGS, "place(staging, root, [(name, path)]) -> numbers of the files that could not be placed"},
    {"rename", rename_with, METH_VARARGS, "rename(from_folder, old, to_folder, new, flags)"},
    {"open_folder", open_folder, METH_VARARGS, "open_folder(root, path) -> descriptor; no part may be a link"},
    {"syncfs", sync_all, METH_VARARGS, "syncfs(descriptor)"},
    {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_place", BUILT_FROM, -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit__place(void) { return PyModule_Create(&module); }
