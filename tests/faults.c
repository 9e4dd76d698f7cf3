/* Fails a chosen call of a process on files below a folder, for tests: preloaded into windlass and its agents.

   FAULT_FOLDER  the folder, absolute and without symbolic links
   FAULT_ROLE    client or agent: the processes whose calls are counted; a trial's own calls never are
   FAULT_AT      the number of the first call that fails, from 1; 0 only counts
   FAULT_ERRNO   the error it fails with
   FAULT_MS      for how long all calls fail from then on; 0 for this one call alone
   FAULT_AFTER   1: a call that changes names is made and then reported as failed, as a lost answer of a server does
   FAULT_LOG     a file outside the folder; each process adds lines "hit ROLE n call path" and, at its end, "calls ROLE n"

   Each process counts for itself, so that a number means the same call in every run, as far as the process does the
   same. Descriptors are followed from open() on. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_FDS 65536
enum { OUTSIDE, INSIDE, UNREAD };  /* UNREAD: a folder that was opened and not listed yet */

static char folder[PATH_MAX];
static size_t folder_length;
static const char *role = "";
static long fail_at, fail_ms, counted;
static int fail_errno, fail_after, log_fd = -1;
static unsigned char fds[MOST_FDS];
static struct timespec first_failure;

static void say(const char *kind, long n, const char *call, const char *path)
{
    char line[PATH_MAX + 200];
    int length = snprintf(line, sizeof line, "%s %s %ld %s %s\n", kind, role, n, call, path);
    if (log_fd >= 0 && length > 0)
        syscall(SYS_write, log_fd, line, (size_t)length);
}

static int is_process_of(const char *wanted)
{
    static char words[1 << 16];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY);
    long size = fd < 0 ? 0 : syscall(SYS_read, fd, words, sizeof words - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    int agent = 0, client = 0;
    for (long at = 0; at < size; at += (long)strlen(words + at) + 1) {
        size_t length = strlen(words + at);
        agent |= length >= 9 && !strcmp(words + at + length - 9, "agent.pyz");
        client |= !strcmp(words + at, "windlass");
    }
    return !strcmp(wanted, agent ? "agent" : client ? "client" : "");
}

__attribute__((constructor)) static void begin(void)
{
    const char *wanted = getenv("FAULT_ROLE"), *where = getenv("FAULT_FOLDER"), *log = getenv("FAULT_LOG");
    if (!wanted || !where || !log || !is_process_of(wanted))
        return;
    role = wanted;
    fail_at = atol(getenv("FAULT_AT") ? getenv("FAULT_AT") : "0");
    fail_ms = atol(getenv("FAULT_MS") ? getenv("FAULT_MS") : "0");
    fail_errno = atoi(getenv("FAULT_ERRNO") ? getenv("FAULT_ERRNO") : "5");
    fail_after = atoi(getenv("FAULT_AFTER") ? getenv("FAULT_AFTER") : "0");
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log_fd >= 0 && log_fd < 100) {  /* out of the way of programs that close low numbers */
        int high = (int)syscall(SYS_fcntl, log_fd, F_DUPFD_CLOEXEC, 900);
        syscall(SYS_close, log_fd);
        log_fd = high;
    }
    snprintf(folder, sizeof folder, "%s", where);
    folder_length = strlen(folder);
}

__attribute__((destructor)) static void end(void)
{
    if (folder_length)
        say("calls", counted, "-", "-");
}

static int begins(const char *path)
{
    return !strncmp(path, folder, folder_length) && (path[folder_length] == '/' || !path[folder_length]);
}

static int is_inside(int at, const char *path)
{
    char here[PATH_MAX];
    if (!folder_length || !path)
        return 0;
    if (path[0] == '/')
        return begins(path);
    if (at != AT_FDCWD)
        return at >= 0 && at < MOST_FDS && fds[at];
    return syscall(SYS_getcwd, here, sizeof here) > 0 && begins(here);
}

/* Whether this call is to fail; counts it. */
static int fails(const char *call, const char *path)
{
    struct timespec now;
    long n = __atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
    if (!fail_at || n < fail_at)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (n == fail_at)
        first_failure = now;
    else if ((now.tv_sec - first_failure.tv_sec) * 1000 + (now.tv_nsec - first_failure.tv_nsec) / 1000000 >= fail_ms)
        return 0;
    say("hit", n, call, path);
    return 1;
}

static int fails_at(const char *call, int at, const char *path)
{
    return is_inside(at, path) && fails(call, path);
}

static int fails_fd(const char *call, int fd)
{
    char link[64], path[PATH_MAX];
    if (!folder_length || fd < 0 || fd >= MOST_FDS || !fds[fd] || !fails(call, "descriptor"))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    say("of", counted, call, path);
    return 1;
}

static void mark(int fd, int state)
{
    if (fd >= 0 && fd < MOST_FDS)
        fds[fd] = (unsigned char)state;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL do { errno = fail_errno; return -1; } while (0)

#define BY_PATH(type, name, parameters, at, path, ...) \
    type name parameters { if (fails_at(#name, at, path)) FAIL; return REAL(name)(__VA_ARGS__); }
#define BY_FD(type, name, parameters, fd, ...) \
    type name parameters { if (fails_fd(#name, fd)) FAIL; return REAL(name)(__VA_ARGS__); }
/* Changes a name: may be made and be reported as failed. */
#define CHANGE(name, parameters, at, path, ...) \
    int name parameters { \
        if (!fails_at(#name, at, path)) return REAL(name)(__VA_ARGS__); \
        if (fail_after) (void)!REAL(name)(__VA_ARGS__); \
        FAIL; }

static mode_t mode_of(int flags, va_list more)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more); \
        int inside = is_inside(AT_FDCWD, path); \
        if (inside && fails(#name, path)) { \
            int made = fail_after && flags & O_CREAT ? REAL(name)(path, flags, mode) : -1; \
            if (made >= 0) syscall(SYS_close, made); \
            FAIL; } \
        int fd = REAL(name)(path, flags, mode); mark(fd, inside ? INSIDE : OUTSIDE); return fd; }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); mode_t mode = mode_of(flags, more); va_end(more); \
        int inside = is_inside(at, path); \
        if (inside && fails(#name, path)) FAIL; \
        int fd = REAL(name)(at, path, flags, mode); mark(fd, inside ? INSIDE : OUTSIDE); return fd; }
OPENAT(openat)
OPENAT(openat64)

/* The descriptor is gone either way, as on Linux. */
int close(int fd)
{
    int failing = fails_fd("close", fd);
    mark(fd, OUTSIDE);
    int answer = REAL(close)(fd);
    if (failing) FAIL;
    return answer;
}

static int follow(int from, int to)
{
    if (to >= 0 && from >= 0 && from < MOST_FDS)
        mark(to, fds[from]);
    return to;
}
int dup(int fd) { return follow(fd, REAL(dup)(fd)); }
int dup2(int fd, int to) { return follow(fd, REAL(dup2)(fd, to)); }
int dup3(int fd, int to, int flags) { return follow(fd, REAL(dup3)(fd, to, flags)); }

#define FCNTL(name) \
    int name(int fd, int command, ...) { \
        va_list more; va_start(more, command); void *value = va_arg(more, void *); va_end(more); \
        int answer = REAL(name)(fd, command, value); \
        return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? follow(fd, answer) : answer; }
FCNTL(fcntl)
FCNTL(fcntl64)

DIR *opendir(const char *path)
{
    int inside = is_inside(AT_FDCWD, path);
    if (inside && fails("opendir", path)) { errno = fail_errno; return NULL; }
    DIR *stream = REAL(opendir)(path);
    if (stream && inside)
        mark(dirfd(stream), UNREAD);
    return stream;
}

int closedir(DIR *stream)
{
    mark(dirfd(stream), OUTSIDE);
    return REAL(closedir)(stream);
}

/* The first of a listing stands for all: the kernel is asked for many names at once. */
#define READDIR(name, entry) \
    struct entry *name(DIR *stream) { \
        int fd = dirfd(stream); \
        if (fd >= 0 && fd < MOST_FDS && fds[fd] == UNREAD) { \
            mark(fd, INSIDE); \
            if (fails_fd(#name, fd)) { errno = fail_errno; return NULL; } } \
        return REAL(name)(stream); }
READDIR(readdir, dirent)
READDIR(readdir64, dirent64)

BY_FD(ssize_t, read, (int fd, void *to, size_t size), fd, fd, to, size)
BY_FD(ssize_t, pread, (int fd, void *to, size_t size, off_t at), fd, fd, to, size, at)
BY_FD(ssize_t, pread64, (int fd, void *to, size_t size, off64_t at), fd, fd, to, size, at)
BY_FD(ssize_t, write, (int fd, const void *from, size_t size), fd, fd, from, size)
BY_FD(ssize_t, writev, (int fd, const struct iovec *from, int count), fd, fd, from, count)
BY_FD(ssize_t, pwrite64, (int fd, const void *from, size_t size, off64_t at), fd, fd, from, size, at)
BY_FD(int, fsync, (int fd), fd, fd)
BY_FD(int, fdatasync, (int fd), fd, fd)
BY_FD(int, ftruncate64, (int fd, off64_t size), fd, fd, size)
BY_FD(int, fstat, (int fd, struct stat *to), fd, fd, to)
BY_FD(int, fstat64, (int fd, struct stat64 *to), fd, fd, to)
BY_FD(int, futimens, (int fd, const struct timespec times[2]), fd, fd, times)
BY_FD(int, fchmod, (int fd, mode_t mode), fd, fd, mode)
BY_PATH(int, stat, (const char *path, struct stat *to), AT_FDCWD, path, path, to)
BY_PATH(int, stat64, (const char *path, struct stat64 *to), AT_FDCWD, path, path, to)
BY_PATH(int, lstat, (const char *path, struct stat *to), AT_FDCWD, path, path, to)
BY_PATH(int, lstat64, (const char *path, struct stat64 *to), AT_FDCWD, path, path, to)
BY_PATH(int, fstatat64, (int at, const char *path, struct stat64 *to, int flags), at, path, at, path, to, flags)
BY_PATH(int, statvfs64, (const char *path, struct statvfs64 *to), AT_FDCWD, path, path, to)
BY_PATH(int, access, (const char *path, int mode), AT_FDCWD, path, path, mode)
BY_PATH(int, faccessat, (int at, const char *path, int mode, int flags), at, path, at, path, mode, flags)
BY_PATH(int, chmod, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
BY_PATH(ssize_t, readlink, (const char *path, char *to, size_t size), AT_FDCWD, path, path, to, size)
BY_PATH(int, utimensat, (int at, const char *path, const struct timespec times[2], int flags), at, path, at, path, times, flags)
CHANGE(link, (const char *path, const char *to), AT_FDCWD, path, path, to)
CHANGE(linkat, (int at, const char *path, int there, const char *to, int flags), at, path, at, path, there, to, flags)
CHANGE(unlink, (const char *path), AT_FDCWD, path, path)
CHANGE(unlinkat, (int at, const char *path, int flags), at, path, at, path, flags)
CHANGE(rename, (const char *path, const char *to), AT_FDCWD, path, path, to)
CHANGE(renameat, (int at, const char *path, int there, const char *to), at, path, at, path, there, to)
CHANGE(mkdir, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
CHANGE(rmdir, (const char *path), AT_FDCWD, path, path)
CHANGE(symlink, (const char *path, const char *to), AT_FDCWD, to, path, to)
