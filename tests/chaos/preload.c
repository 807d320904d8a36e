/* Preloaded into the processes of a disturbed job (LD_PRELOAD): writing below some folders fails with EIO, and the
   day's clock of a process is ahead, as a table says to which `preload.py` writes. Where neither is wanted it changes
   nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { FOLDERS = 2, PROCESSES = 1 << 16 };

/* As `preload._LAYOUT` has it. */
struct table {
    int64_t failing[FOLDERS];  /* whether writing there fails */
    int64_t failed[FOLDERS];   /* how often it has */
    int64_t ahead[PROCESSES];  /* seconds, by the process's number */
};

static struct table *table;
static const char *folders[FOLDERS];

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_TABLE");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    folders[0] = getenv("CHAOS_FOLDER_0");
    folders[1] = getenv("CHAOS_FOLDER_1");
    if (found != MAP_FAILED && folders[0] && folders[1])
        table = found;
}

/* ---- disks that fail ------------------------------------------------------------------------------------------- */

static int fails(int file) {
    if (!table || !(table->failing[0] | table->failing[1]))
        return 0;
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    for (int at = 0; at < FOLDERS; at++) {
        size_t size = strlen(folders[at]);
        if (table->failing[at] && !strncmp(path, folders[at], size) && path[size] == '/') {
            __atomic_add_fetch(&table->failed[at], 1, __ATOMIC_RELAXED);
            errno = EIO;
            return 1;
        }
    }
    return 0;
}

/* Defines a function of the C library that fails where it is to, and else is what it was. */
#define WRITES(type, name, parameters, arguments)                  \
    type name parameters {                                         \
        static type(*real) parameters;                             \
        if (!real)                                                 \
            real = (type(*) parameters)dlsym(RTLD_NEXT, #name);    \
        return fails(file) ? (type)-1 : real arguments;            \
    }

WRITES(ssize_t, write, (int file, const void *data, size_t size), (file, data, size))
WRITES(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count))
WRITES(ssize_t, pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at))
WRITES(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at))
WRITES(int, fsync, (int file), (file))
WRITES(int, fdatasync, (int file), (file))

/* ---- clocks that have jumped ----------------------------------------------------------------------------------- */

static int64_t ahead(void) {
    return table ? table->ahead[getpid() & (PROCESSES - 1)] : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec found;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *told) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (told)
        *told = found.tv_sec;
    return found.tv_sec;
}

/* The kernel's clock has not jumped. Who waits until a time of the day waits until the kernel's; times of the other
   clocks are seconds since the machine has started, and far less. */
static const struct timespec *kernels(const struct timespec *until, struct timespec *own) {
    int64_t seconds = until ? ahead() : 0;
    if (!seconds || until->tv_sec < 1000000000)
        return until;
    *own = *until;
    own->tv_sec -= seconds;
    return own;
}

/* Versions: dlsym would find the oldest of a function that has several. */
#define WAITS(name, version, parameters, arguments)                     \
    int name parameters {                                               \
        static int(*real) parameters;                                   \
        struct timespec own;                                            \
        if (!real)                                                      \
            real = (int(*) parameters)dlvsym(RTLD_NEXT, #name, version); \
        if (!real)                                                      \
            real = (int(*) parameters)dlsym(RTLD_NEXT, #name);          \
        return real arguments;                                          \
    }

WAITS(pthread_cond_timedwait, "GLIBC_2.3.2",
      (pthread_cond_t *restrict one, pthread_mutex_t *restrict lock, const struct timespec *restrict until),
      (one, lock, kernels(until, &own)))
WAITS(pthread_cond_clockwait, "GLIBC_2.34",
      (pthread_cond_t *one, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until),
      (one, lock, clock, kernels(until, &own)))
WAITS(pthread_mutex_timedlock, "GLIBC_2.34", (pthread_mutex_t *restrict one, const struct timespec *restrict until),
      (one, kernels(until, &own)))
WAITS(sem_timedwait, "GLIBC_2.34", (sem_t *restrict one, const struct timespec *restrict until),
      (one, kernels(until, &own)))
WAITS(sem_clockwait, "GLIBC_2.34", (sem_t *restrict one, clockid_t clock, const struct timespec *restrict until),
      (one, clock, kernels(until, &own)))

/* gRPC's library waits for locks by this. */
long syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    va_list given;
    va_start(given, number);
    long part[6];
    for (int at = 0; at < 6; at++)
        part[at] = va_arg(given, long);
    va_end(given);
    struct timespec own;
    if (number == SYS_futex && (part[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET)
        part[3] = (long)kernels((const struct timespec *)part[3], &own);
    return real(number, part[0], part[1], part[2], part[3], part[4], part[5]);
}
