// The streams of bench.engine: SSE clients of several gateways, in one thread on one epoll, that only count frames.
//
//   streams REQUESTS      a file of: port, how many streams, size of the request (32 bits each), the request
//
// All are opened, then:
//   -> opened COUNT SECONDS
// Orders come on standard input, one a line:
//   run SECONDS           -> ran SECONDS LOAD_CPU_S CLOSED FRAMES..., one for each entry of the file
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 20000
#define ENTRIES_MAX 20000
#define IN_FLIGHT_MAX 64
#define EVENTS_MAX 512
#define MARKER "event: metric"
#define MARKER_SIZE (sizeof MARKER - 1)
#define CARRY_MAX (MARKER_SIZE - 1)

struct stream { int fd, entry; char open; unsigned char carried; char carry[CARRY_MAX]; };

static struct stream streams[STREAMS_MAX];
static long frames[ENTRIES_MAX];
static int count, closed, epoll;
static char buffer[CARRY_MAX + (64 << 10)];

static double seconds_of(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static void die(const char *what) { perror(what); exit(1); }

// 0 when it is over.
static int receive(struct stream *stream) {
    memcpy(buffer, stream->carry, stream->carried);
    ssize_t got = read(stream->fd, buffer + stream->carried, sizeof buffer - CARRY_MAX);
    if (got <= 0) return 0;
    char *at = buffer, *end = buffer + stream->carried + got;
    if (!stream->open) {
        if (got < 16 || memcmp(buffer, "HTTP/1.1 200", 12)) {
            fprintf(stderr, "refused: %.*s\n", (int)(end - buffer), buffer);
            exit(1);
        }
        stream->open = 1;
    }
    for (char *found; (found = memmem(at, end - at, MARKER, MARKER_SIZE)) != NULL; at = found + MARKER_SIZE)
        frames[stream->entry]++;
    size_t left = end - at < (ssize_t)CARRY_MAX ? (size_t)(end - at) : CARRY_MAX;
    memcpy(stream->carry, end - left, left);
    stream->carried = left;
    return 1;
}

static int wait_for(struct epoll_event *events, int timeout_ms) {
    int ready = epoll_wait(epoll, events, EVENTS_MAX, timeout_ms);
    for (int i = 0; i < ready; i++) {
        struct stream *stream = &streams[events[i].data.u32];
        if (receive(stream)) continue;
        close(stream->fd);
        closed++;
    }
    return ready;
}

static void open_one(uint32_t port, int entry, const char *request, uint32_t size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct stream *stream = &streams[count];
    int one = 1;
    stream->fd = socket(AF_INET, SOCK_STREAM, 0);
    stream->entry = entry;
    if (stream->fd < 0) die("socket");
    setsockopt(stream->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(stream->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    if (write(stream->fd, request, size) != (ssize_t)size) die("write");
    fcntl(stream->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = count++};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, stream->fd, &event)) die("epoll_ctl");
}

static int opened(void) {
    static int from;  // all before it are
    while (from < count && streams[from].open) from++;
    int more = 0;
    for (int i = from; i < count; i++) more += streams[i].open;
    return from + more;
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setvbuf(stdout, NULL, _IOLBF, 0);
    epoll = epoll_create1(0);
    struct epoll_event events[EVENTS_MAX];
    FILE *file = fopen(argv[1], "rb");
    int entries = 0;
    double began = now();
    for (uint32_t head[3]; file && fread(head, 4, 3, file) == 3; entries++) {
        char request[8192];
        if (entries == ENTRIES_MAX || head[2] > sizeof request || count + head[1] > STREAMS_MAX) return 2;
        if (fread(request, 1, head[2], file) != head[2]) die("the requests");
        for (uint32_t i = 0; i < head[1]; i++) {
            open_one(head[0], entries, request, head[2]);
            while (count - opened() >= IN_FLIGHT_MAX)
                if (wait_for(events, 30000) <= 0) die("opening streams");
        }
    }
    while (opened() < count)
        if (wait_for(events, 30000) <= 0) die("opening streams");
    printf("opened %d %f\n", count, now() - began);
    char line[64];
    int in = 0;
    for (;;) {  // frames between two runs are read too
        fd_set waiting;
        FD_ZERO(&waiting);
        FD_SET(in, &waiting);
        struct timeval no_time = {0};
        if (select(in + 1, &waiting, NULL, NULL, &no_time) == 0) {
            wait_for(events, 20);
            continue;
        }
        double seconds;
        ssize_t got = read(in, line, sizeof line - 1);
        if (got <= 0) return 0;
        line[got] = 0;
        if (sscanf(line, "run %lf", &seconds) != 1) return 2;
        memset(frames, 0, sizeof frames);
        double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        began = now();
        while (now() - began < seconds) wait_for(events, 5);
        printf("ran %f %f %d", now() - began, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu, closed);
        for (int i = 0; i < entries; i++) printf(" %ld", frames[i]);
        printf("\n");
    }
}
