/* Fails the n-th write, flush or rename of this process in one folder, as a broken or full disk does.
 *
 * Loaded before the C library (LD_PRELOAD), so that SQLite and Python both go through it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[4096];
static char kinds[8];
static int left = -1, error, forever, fired;

/* Fail the n-th call of the given kinds (w: write, s: flush, r: rename, t: truncate) in a folder; all later ones too,
 * if they are to fail forever. */
void fail_call(const char *where, const char *which, int n, int number, int on) {
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(kinds, sizeof kinds, "%s", which);
    error = number, forever = on, fired = 0, left = n;
}

int count_fired(void) { return fired; }

static int hits(char kind, const char *path) {
    if (left < 0 || !strchr(kinds, kind) || strncmp(path, folder, strlen(folder))) return 0;
    if (left > 1) { left--; return 0; }
    if (!forever) left = -1;
    fired++;
    errno = error;
    return 1;
}

static int hits_file(char kind, int file) {
    char name[64], path[4096];
    if (left < 0) return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return hits(kind, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *data, size_t size) { return hits_file('w', file) ? -1 : NEXT(write)(file, data, size); }
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return hits_file('w', file) ? -1 : NEXT(pwrite)(file, data, size, at); }
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return hits_file('w', file) ? -1 : NEXT(pwrite64)(file, data, size, at); }
int ftruncate(int file, off_t size) { return hits_file('t', file) ? -1 : NEXT(ftruncate)(file, size); }
int ftruncate64(int file, off64_t size) { return hits_file('t', file) ? -1 : NEXT(ftruncate64)(file, size); }
int fsync(int file) { return hits_file('s', file) ? -1 : NEXT(fsync)(file); }
int fdatasync(int file) { return hits_file('s', file) ? -1 : NEXT(fdatasync)(file); }
int rename(const char *from, const char *to) { return hits('r', to) ? -1 : NEXT(rename)(from, to); }
