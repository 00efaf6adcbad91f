/* The stat values that a scan uses: fewer than `stat_result` has, for a third of the time. Include Python.h first. */
#include "stat.h"

#define LATEST 9000000000 /* seconds; reader.py clamps times outside this range, since a document cannot hold them */

static inline int fits(struct timespec t) { return t.tv_sec > -LATEST && t.tv_sec < LATEST; }

static PyTypeObject *seen_type;
static PyStructSequence_Field seen_fields[] = {
    {"st_mode", NULL}, {"st_ino", NULL}, {"st_size", NULL}, {"st_uid", NULL}, {"st_gid", NULL},
    {"st_dev", NULL}, {"st_mtime_ns", NULL}, {"st_ctime_ns", NULL}, {NULL, NULL},
};
static PyStructSequence_Desc seen_description = {"keepfast.workspace.seen", NULL, seen_fields, 8};

/* Return a time in nanoseconds, also if that needs more than 64 bits. */
static PyObject *exact(struct timespec t)
{
    if (fits(t))
        return PyLong_FromLongLong(ns(t));
    PyObject *seconds = PyLong_FromLongLong(t.tv_sec), *many = PyLong_FromLong(1000000000), *rest = PyLong_FromLong(t.tv_nsec);
    PyObject *product = seconds && many ? PyNumber_Multiply(seconds, many) : NULL;
    PyObject *sum = product && rest ? PyNumber_Add(product, rest) : NULL;
    Py_XDECREF(seconds);
    Py_XDECREF(many);
    Py_XDECREF(rest);
    Py_XDECREF(product);
    return sum;
}

static PyObject *as_seen(const struct stat *s)
{
    PyObject *seen = PyStructSequence_New(seen_type);
    if (!seen)
        return NULL;
    PyObject *values[] = {
        PyLong_FromLong(s->st_mode), PyLong_FromUnsignedLongLong(s->st_ino), PyLong_FromLongLong(s->st_size),
        PyLong_FromUnsignedLong(s->st_uid), PyLong_FromUnsignedLong(s->st_gid), PyLong_FromUnsignedLongLong(s->st_dev),
        exact(MTIME(*s)), exact(CTIME(*s)),
    };
    int well = 1;
    for (int i = 0; i < 8; i++) {
        PyStructSequence_SetItem(seen, i, values[i]); /* takes over the reference; NULL leaves the item empty */
        well = well && values[i];
    }
    if (!well)
        Py_CLEAR(seen);
    return seen;
}

static int make_seen(void)
{
    if (!seen_type)
        seen_type = PyStructSequence_NewType(&seen_description);
    return seen_type != NULL;
}
