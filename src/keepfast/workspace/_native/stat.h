/* File times, as all C modules read them. */
#pragma once
#include <stdint.h>
#include <sys/stat.h>
#include <time.h>

#ifdef __APPLE__
#define CTIME(s) (s).st_ctimespec
#define MTIME(s) (s).st_mtimespec
#else
#define CTIME(s) (s).st_ctim
#define MTIME(s) (s).st_mtim
#endif

/* Unsigned, because a file may have a time that does not fit: it wraps, as in stat_cache.py. */
static inline int64_t ns(struct timespec t)
{
    return (int64_t)((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
}
