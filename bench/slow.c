/* Delays and counts the calls that a process makes on files below one folder, as if that were on shared storage.
 *
 *   cc -O2 -shared -fPIC -o slow.so slow.c -ldl
 *   SLOW_FOLDER=/path SLOW_US=1000 SLOW_COUNTS=/tmp/counts LD_PRELOAD=./slow.so command ...
 *
 * Each process appends one line to SLOW_COUNTS when it ends: opens, reads, closes, stats, listings, others.
 * A listing counts as one call, however long it is.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_FILES 65536

static const char *folder;
static size_t folder_length;
static long delay_us;
static atomic_char below[MOST_FILES];
enum { OPENS, READS, CLOSES, STATS, LISTINGS, OTHERS, KINDS };
static atomic_long counts[KINDS];

__attribute__((constructor)) static void begin(void) {
    folder = getenv("SLOW_FOLDER");
    folder_length = folder ? strlen(folder) : 0;
    delay_us = getenv("SLOW_US") ? atol(getenv("SLOW_US")) : 0;
}

__attribute__((destructor)) static void end(void) {
    const char *path = getenv("SLOW_COUNTS");
    if (!path || !folder) return;
    char line[200];
    int length = snprintf(line, sizeof line, "%ld %ld %ld %ld %ld %ld\n", counts[OPENS], counts[READS], counts[CLOSES],
                          counts[STATS], counts[LISTINGS], counts[OTHERS]);
    FILE *file = fopen(path, "a");
    if (!file) return;
    fwrite(line, 1, (size_t)length, file);
    fclose(file);
}

static int is_below(const char *path) {
    return folder_length && path && !strncmp(path, folder, folder_length);
}

static void spend(int kind) {
    counts[kind]++;
    if (delay_us) {
        struct timespec pause = {delay_us / 1000000, delay_us % 1000000 * 1000};
        nanosleep(&pause, NULL);
    }
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static int opened(int descriptor, const char *path, int at) {
    int slow = is_below(path) || (path && path[0] != '/' && at >= 0 && at < MOST_FILES && below[at]);
    if (slow) spend(OPENS);
    if (slow && descriptor >= 0 && descriptor < MOST_FILES) below[descriptor] = 1;
    return descriptor;
}

#define MODE(flags, mode) va_list words; va_start(words, flags); mode_t mode = va_arg(words, mode_t); va_end(words)

int open(const char *path, int flags, ...) { MODE(flags, mode); REAL(open); return opened(real(path, flags, mode), path, -1); }
int open64(const char *path, int flags, ...) { MODE(flags, mode); REAL(open64); return opened(real(path, flags, mode), path, -1); }
int openat(int at, const char *path, int flags, ...) { MODE(flags, mode); REAL(openat); return opened(real(at, path, flags, mode), path, at); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags, mode); REAL(openat64); return opened(real(at, path, flags, mode), path, at); }

static int is_slow(int descriptor) { return descriptor >= 0 && descriptor < MOST_FILES && below[descriptor]; }

int close(int descriptor) {
    REAL(close);
    if (is_slow(descriptor)) { spend(CLOSES); below[descriptor] = 0; }
    return real(descriptor);
}
ssize_t read(int d, void *b, size_t n) { REAL(read); if (is_slow(d)) spend(READS); return real(d, b, n); }
ssize_t pread(int d, void *b, size_t n, off_t o) { REAL(pread); if (is_slow(d)) spend(READS); return real(d, b, n, o); }
ssize_t pread64(int d, void *b, size_t n, off64_t o) { REAL(pread64); if (is_slow(d)) spend(READS); return real(d, b, n, o); }
int fstat(int d, struct stat *s) { REAL(fstat); if (is_slow(d)) spend(STATS); return real(d, s); }
int fstat64(int d, struct stat64 *s) { REAL(fstat64); if (is_slow(d)) spend(STATS); return real(d, s); }
int stat(const char *p, struct stat *s) { REAL(stat); if (is_below(p)) spend(STATS); return real(p, s); }
int stat64(const char *p, struct stat64 *s) { REAL(stat64); if (is_below(p)) spend(STATS); return real(p, s); }
int lstat(const char *p, struct stat *s) { REAL(lstat); if (is_below(p)) spend(STATS); return real(p, s); }
int lstat64(const char *p, struct stat64 *s) { REAL(lstat64); if (is_below(p)) spend(STATS); return real(p, s); }
int fstatat(int d, const char *p, struct stat *s, int f) { REAL(fstatat); if (is_below(p) || is_slow(d)) spend(STATS); return real(d, p, s, f); }
int fstatat64(int d, const char *p, struct stat64 *s, int f) { REAL(fstatat64); if (is_below(p) || is_slow(d)) spend(STATS); return real(d, p, s, f); }
int access(const char *p, int m) { REAL(access); if (is_below(p)) spend(STATS); return real(p, m); }
ssize_t readlink(const char *p, char *b, size_t n) { REAL(readlink); if (is_below(p)) spend(STATS); return real(p, b, n); }
DIR *opendir(const char *p) { REAL(opendir); if (is_below(p)) spend(LISTINGS); return real(p); }
int link(const char *a, const char *b) { REAL(link); if (is_below(b)) spend(OTHERS); return real(a, b); }
int rename(const char *a, const char *b) { REAL(rename); if (is_below(b)) spend(OTHERS); return real(a, b); }
int unlink(const char *p) { REAL(unlink); if (is_below(p)) spend(OTHERS); return real(p); }
int mkdir(const char *p, mode_t m) { REAL(mkdir); if (is_below(p)) spend(OTHERS); return real(p, m); }
ssize_t write(int d, const void *b, size_t n) { REAL(write); if (is_slow(d)) spend(OTHERS); return real(d, b, n); }
int fsync(int d) { REAL(fsync); if (is_slow(d)) spend(OTHERS); return real(d); }
