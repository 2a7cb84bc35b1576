/* A disk that fails, for LD_PRELOAD: the k-th write or sync of the process, from `arm` on, fails with EIO (mode 0), writes half of what it
   was given (1), or fails as all that come after it do (2). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

static volatile long left = -1;
static volatile int mode, failed;

void arm(long k, int how) { failed = 0; mode = how; left = k; }
int disarm(void) { left = -1; return failed; }

static int due(void) {
    if (left < 0) return 0;
    if (left > 0 && --left > 0) return 0;
    if (failed && mode != 2) return 0;
    return failed = 1;
}

#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)
#define FAIL do { errno = EIO; return -1; } while (0)

typedef ssize_t (*write_call)(int, const void *, size_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off64_t);
typedef int (*sync_call)(int);

ssize_t write(int file, const void *data, size_t size) {
    REAL("write", write_call);
    if (!due()) return real(file, data, size);
    if (mode == 1 && size > 1) return real(file, data, size / 2);
    FAIL;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) {
    REAL("pwrite64", pwrite_call);
    if (!due()) return real(file, data, size, at);
    if (mode == 1 && size > 1) return real(file, data, size / 2, at);
    FAIL;
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) { return pwrite64(file, data, size, at); }
int fsync(int file) { REAL("fsync", sync_call); if (!due()) return real(file); FAIL; }
int fdatasync(int file) { REAL("fdatasync", sync_call); if (!due()) return real(file); FAIL; }
