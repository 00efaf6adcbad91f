/* The stat cache as the C code reads it; stat_cache.py describes the bytes. */
#include <limits.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t files, folders;
    const int64_t *ctime, *size, *inode, *folder_mtime, *folder_ctime, *folder_inode, *count;
    const char *names, *paths; /* each followed by NUL */
} Layout;

/* Return whether the text ends in NUL and holds as many strings as the header says; otherwise a reader could run past its end. */
static int sound(const char *text, int64_t bytes, int64_t strings)
{
    int64_t i = 0;
    if (bytes < 0 || (bytes && text[bytes - 1])) return 0;
    for (; bytes - i >= 128; i += 128) { /* in blocks, which compilers vectorise */
        uint8_t ends = 0;
        for (int k = 0; k < 128; k++) ends += !text[i + k];
        strings -= ends;
    }
    for (; i < bytes; i++)
        if (!text[i]) strings--;
    return strings == 0;
}

/* Find the parts of a cache; false if its numbers are inconsistent. */
static int lay_out(const char *raw, int64_t length, Layout *l)
{
    int64_t head[6], total = 0;
    uint32_t padded;
    if (length < 64) return 0;
    memcpy(head, raw + 16, sizeof head);
    memcpy(&padded, raw + 12, 4);
    /* No number may be larger than the total size, so that sums cannot overflow. */
    for (int i = 0; i < 5; i++)
        if (head[i] < 0 || head[i] > length) return 0;
    l->files = head[0];
    l->folders = head[1];
    if (l->files > UINT32_MAX || l->folders > UINT32_MAX || padded % 8) return 0;
    int64_t columns = 64 + (int64_t)padded, texts = columns + 8 * (3 * l->files + 4 * l->folders);
    if (texts + head[2] + head[3] + head[4] != length) return 0;
    l->names = raw + texts;
    l->paths = l->names + head[2];
    if (!sound(l->names, head[2], l->files) || !sound(l->paths, head[3], l->folders)) return 0;
    if ((uintptr_t)(raw + columns) % 8) return 0; /* bytes objects are aligned; a slice of one may not be */
    l->ctime = (const int64_t *)(raw + columns);
    l->size = l->ctime + l->files;
    l->inode = l->size + l->files;
    l->folder_mtime = l->inode + l->files;
    l->folder_ctime = l->folder_mtime + l->folders;
    l->folder_inode = l->folder_ctime + l->folders;
    l->count = l->folder_inode + l->folders;
    for (int64_t i = 0; i < l->folders; i++) {
        if (l->count[i] < 0 || l->count[i] > l->files) return 0;
        total += l->count[i];
    }
    return total == l->files;
}

static inline int rises(const uint32_t *numbers, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (numbers[i] <= numbers[i - 1]) return 0;
    return 1;
}
