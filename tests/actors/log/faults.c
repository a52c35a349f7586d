/* Preloaded into a process under test: makes one write or one sync of a chosen file fail, as a dying disk would.
 *
 * fault_arm(suffix, op, nth, how): the nth call of `op` on a file whose name ends in `suffix` goes wrong.
 *   op:  1 fsync or fdatasync, 2 pwrite
 *   how: an errno to fail with; -1 write half and fail with EIO; -2 write half, or sync nothing, and die on the spot
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char armed_suffix[64];
static int armed_op, armed_how;
static int remaining;

void fault_arm(const char *suffix, int op, int nth, int how)
{
    snprintf(armed_suffix, sizeof armed_suffix, "%s", suffix);
    armed_op = op;
    armed_how = how;
    __sync_synchronize();
    remaining = nth;
}

static int is_due(int fd, int op)
{
    char link[64], path[4096];
    if (remaining <= 0 || op != armed_op)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    size_t suffix = strlen(armed_suffix);
    if (length < (ssize_t)suffix || memcmp(path + length - suffix, armed_suffix, suffix) != 0)
        return 0;
    return --remaining == 0;
}

static int sync_or_fail(int fd, const char *name)
{
    if (is_due(fd, 1)) {
        if (armed_how == -2)
            _exit(9);
        errno = armed_how;
        return -1;
    }
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

int fsync(int fd) { return sync_or_fail(fd, "fsync"); }
int fdatasync(int fd) { return sync_or_fail(fd, "fdatasync"); }

static ssize_t write_or_fail(int fd, const void *data, size_t size, off64_t offset, const char *name)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) =
        (ssize_t (*)(int, const void *, size_t, off64_t))dlsym(RTLD_NEXT, name);
    if (!is_due(fd, 2))
        return real(fd, data, size, offset);
    if (armed_how < 0)
        real(fd, data, size / 2, offset);
    if (armed_how == -2)
        _exit(9);
    errno = armed_how < 0 ? EIO : armed_how;
    return -1;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return write_or_fail(fd, data, size, offset, "pwrite64");
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return write_or_fail(fd, data, size, offset, "pwrite");
}
