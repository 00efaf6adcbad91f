/* Reading a file as most are, by one call: regular, not large, as the scan saw it, and holding still. None for any other:
   read.py then reads it in its own way, and with it come all errors and all doubts. Both make the same rows. */
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64 /* otherwise 32-bit systems cannot stat a large file */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/xattr.h>
#endif

#ifdef __APPLE__
#define CTIME(s) (s).st_ctimespec
#define MTIME(s) (s).st_mtimespec
#else
#define CTIME(s) (s).st_ctim
#define MTIME(s) (s).st_mtim
#endif
#ifndef O_NOATIME
#define O_NOATIME 0
#endif
#define LATEST 9000000000 /* seconds; what lies beyond does not fit into a document, and read.py knows what to do */

typedef struct {
    long long ctime;
    unsigned long long inode;
    Py_ssize_t size;
    unsigned int owner, group;
} Expected;

static int fits(struct timespec t) { return t.tv_sec > -LATEST && t.tv_sec < LATEST; }

static long long ns(struct timespec t) { return (long long)t.tv_sec * 1000000000 + t.tv_nsec; }

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
    return Py_BuildValue("(NiiLK)", content, (int)(s.st_mode & 07777), is_sparse, ns(MTIME(s)), group);
}

static PyMethodDef methods[] = {
    {"take", take_file, METH_VARARGS,
     "take(folder, name, size, ctime, inode, uid, gid): (content, mode, is sparse, mtime, group), or None."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_read", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__read(void) { return PyModule_Create(&module); }
