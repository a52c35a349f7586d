// The load of bench.fanout: the publisher, and thousands of SSE clients, in one thread on one epoll.
//
//   load PORT SERVER_PID REQUEST_FILE fifo FIFO         publishes by writing a stamp to the server's FIFO
//   load PORT SERVER_PID REQUEST_FILE post POST_FILE    publishes by an HTTP request with the stamp put in
//
// Orders come on standard input, one a line, and each is answered by a line:
//   open COUNT STALLED [AT_ONCE]   COUNT more streams, STALLED of them with a small receive buffer and never read again
//       -> opened COUNT SECONDS
//   ended                     wait until the server has ended every stream
//       -> ended COUNT SECONDS
//   run SECONDS HZ            publish HZ frames a second for so long; 0: the next one when all streams have the one
//                             before the last (FRAMES_AHEAD)
//       -> ran FRAMES SECONDS LOAD_CPU_S SERVER_CPU_S SAMPLES P50_US P99_US MAX_US CLOSED LOST
//
// A stamp is CLOCK_MONOTONIC in microseconds plus 10^15: sixteen digits, which come back after MARKER in the frame.
//   load ... post POST_FILE PUBLISH_PORT                the same on another port
// Compiled with -DTLS, the streams speak TLS; publishing does not.
//
// Latency is from just before publishing to just after the read() that brought them.
#include <arpa/inet.h>
#include <errno.h>
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

#ifdef TLS
#include <openssl/ssl.h>
static SSL_CTX *tls;
#endif

#define STREAMS_MAX 20000
#define IN_FLIGHT_MAX 64
#define EVENTS_MAX 512
#define MARKER "\"mem_bytes\":"
#define MARKER_SIZE (sizeof MARKER - 1)
#define DIGITS 16
#define CARRY_MAX (MARKER_SIZE + DIGITS - 1)
#define FRAMES_AHEAD 2  // one being served, one that waits: the gateway would replace a second one that waits
#define LOST_S 10.0     // without a frame: what was published is not coming any more
#define GRACE_S 0.5  // after a run, for frames under way

struct stream {
    int fd;
#ifdef TLS
    SSL *ssl;
#endif
    char stalled, open;
    unsigned char carried;
    char carry[CARRY_MAX];  // of a frame, or of the head, that a read cut in two
};

static struct stream streams[STREAMS_MAX];
static int streams_count, stalled_count, port, epoll, closed, publishing, by_post;
static clockid_t server_clock;
static char request[8192], post[8192], *post_digits;
static size_t request_size, post_size;
static uint32_t *samples;
static size_t samples_count, samples_room = 1 << 20;
static uint64_t sample_from_us, sample_until_us;
static long frames, lost;
static struct { uint64_t stamp_us; int missing; } ahead[FRAMES_AHEAD];  // published and not with everybody yet
static char buffer[CARRY_MAX + (64 << 10)];

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }
static uint64_t now_us(void) { return (uint64_t)(now() * 1e6); }

static void die(const char *what) {
    perror(what);
    exit(1);
}

static size_t slurp(const char *path, char *into, size_t room) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    size_t size = fread(into, 1, room - 1, file);
    into[size] = 0;
    fclose(file);
    return size;
}

static int connected(int port, int small) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, bytes = 2304;
    if (fd < 0) die("socket");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (small) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void secure(struct stream *stream) {
#ifdef TLS
    fcntl(stream->fd, F_SETFL, 0);
    stream->ssl = SSL_new(tls);
    SSL_set_fd(stream->ssl, stream->fd);
    if (SSL_connect(stream->ssl) != 1) die("SSL_connect");
    fcntl(stream->fd, F_SETFL, O_NONBLOCK);
#else
    (void)stream;
#endif
}

static ssize_t stream_write(struct stream *stream, const char *data, size_t size) {
#ifdef TLS
    return SSL_write(stream->ssl, data, size);
#else
    return write(stream->fd, data, size);
#endif
}

static ssize_t stream_read(struct stream *stream, char *into, size_t room) {
#ifdef TLS
    ssize_t all = 0;
    while (room > (size_t)all + (16 << 10)) {  // all records that are here, or nobody would come back for them
        int got = SSL_read(stream->ssl, into + all, room - all);
        if (got > 0) {
            all += got;
            continue;
        }
        if (all) return all;
        if (SSL_get_error(stream->ssl, got) != SSL_ERROR_WANT_READ) return 0;
        errno = EAGAIN;
        return -1;
    }
    return all;
#else
    return read(stream->fd, into, room);
#endif
}

static void watch(int fd, uint32_t id) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = id};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) die("epoll_ctl");
}

static void take_frame(const char *digits, uint64_t at_us) {
    uint64_t sent_us = 0;
    for (int i = 1; i < DIGITS; i++) sent_us = sent_us * 10 + (digits[i] - '0');
    frames++;
    for (int i = 0; i < FRAMES_AHEAD; i++)
        if (ahead[i].stamp_us == sent_us && ahead[i].missing > 0) ahead[i].missing--;
    if (sent_us < sample_from_us || sent_us >= sample_until_us) return;
    if (samples_count == samples_room) {
        samples_room *= 2;
        samples = realloc(samples, samples_room * sizeof *samples);
        if (!samples) die("realloc");
    }
    samples[samples_count++] = at_us > sent_us ? at_us - sent_us : 0;
}

// What a stream has sent; 0 when it is over.
static int receive(struct stream *stream) {
    memcpy(buffer, stream->carry, stream->carried);
    ssize_t got = stream_read(stream, buffer + stream->carried, sizeof buffer - CARRY_MAX);
    if (got < 0 && errno == EAGAIN) return 1;
    if (got <= 0) return 0;
    char *at = buffer, *end = buffer + stream->carried + got;
    if (!stream->open) {
        char *body = memmem(buffer, end - buffer, "\r\n\r\n", 4);
        if (got < 16 || memcmp(buffer, "HTTP/1.1 200", 12) || !body) {
            fprintf(stderr, "refused: %.*s\n", (int)(end - buffer), buffer);
            exit(1);
        }
        stream->open = 1;
        at = body + 4;
    }
    uint64_t at_us = now_us();
    for (char *found; (found = memmem(at, end - at, MARKER, MARKER_SIZE)) != NULL;) {
        if (end - found < (ssize_t)(MARKER_SIZE + DIGITS)) {
            at = found;
            break;
        }
        at = found + MARKER_SIZE;
        if (*at == '1' && at[DIGITS - 1] != ',') take_frame(at, at_us);
    }
    size_t left = end - at;
    if (left > CARRY_MAX) left = CARRY_MAX;
    memcpy(stream->carry, end - left, left);
    stream->carried = left;
    return 1;
}

static void open_streams(int count, int stalled, int at_once) {
    double began = now();
    int begun = 0, opened = 0, first = streams_count;
    struct epoll_event events[EVENTS_MAX];
    while (opened < count) {
        while (begun < count && begun - opened < at_once) {
            struct stream *stream = &streams[streams_count];
            memset(stream, 0, sizeof *stream);
            stream->stalled = (long)(begun + 1) * stalled / count > (long)begun * stalled / count;
            stream->fd = connected(port, stream->stalled);
            secure(stream);
            stalled_count += stream->stalled;
            if (stream_write(stream, request, request_size) != (ssize_t)request_size) die("write");
            watch(stream->fd, streams_count++);
            begun++;
        }
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 60000);
        if (ready <= 0) {
            fprintf(stderr, "%d of %d streams opened, then nothing for a minute\n", opened, count);
            exit(1);
        }
        for (int i = 0; i < ready; i++) {
            struct stream *stream = &streams[events[i].data.u32];
            int was_open = stream->open;
            if (!receive(stream)) die("closed while opening");
            if (was_open || !stream->open) continue;
            if (events[i].data.u32 >= (uint32_t)first) opened++;
            if (stream->stalled) epoll_ctl(epoll, EPOLL_CTL_DEL, stream->fd, NULL);
        }
    }
    printf("opened %d %f\n", count, now() - began);
}

static void await_ends(void) {
    double began = now();
    int ended = 0;
    struct epoll_event events[EVENTS_MAX];
    while (ended < streams_count) {
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 60000);
        if (ready <= 0) {
            fprintf(stderr, "%d of %d streams ended, then nothing for a minute\n", ended, streams_count);
            exit(1);
        }
        for (int i = 0; i < ready; i++) {
            struct stream *stream = &streams[events[i].data.u32];
            if (receive(stream)) continue;
            close(stream->fd);
            ended++;
        }
    }
    printf("ended %d %f\n", ended, now() - began);
    streams_count = stalled_count = 0;
}

static void publish(int place) {
    char digits[DIGITS + 1];
    uint64_t stamp_us = now_us();
    ahead[place].stamp_us = stamp_us;
    ahead[place].missing = streams_count - stalled_count - closed;
    snprintf(digits, sizeof digits, "%016llu", 1000000000000000ULL + (unsigned long long)stamp_us);
    if (by_post) memcpy(post_digits, digits, DIGITS);
    const char *data = by_post ? post : digits;
    ssize_t size = by_post ? (ssize_t)post_size : DIGITS;
    if (write(publishing, data, size) != size) die("publish");
}

static int a_place(void) {
    for (int i = 0; i < FRAMES_AHEAD; i++)
        if (ahead[i].missing == 0) return i;
    return -1;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void run(double seconds, double hz) {
    struct epoll_event events[EVENTS_MAX];
    double began = now(), until = began + seconds, due = began, ended = 0, heard = began;
    double load_cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), server_cpu = seconds_of(server_clock);
    long counted = 0;
    frames = samples_count = lost = 0;
    memset(ahead, 0, sizeof ahead);
    sample_from_us = began * 1e6;
    sample_until_us = until * 1e6;
    for (double at = began; at < until + GRACE_S; at = now()) {
        if (at >= until && !ended) {
            ended = at;
            counted = frames;
            load_cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - load_cpu;
            server_cpu = seconds_of(server_clock) - server_cpu;
        }
        if (at < until && hz == 0) {
            for (int place; (place = a_place()) >= 0;) publish(place);
            if (at - heard > LOST_S) {
                for (int i = 0; i < FRAMES_AHEAD; i++) lost += ahead[i].missing;
                memset(ahead, 0, sizeof ahead);
                heard = at;
            }
        } else if (at < until && at >= due) {
            publish(0);
            due += 1 / hz;
        }
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 1);
        if (ready > 0) heard = at;
        for (int i = 0; i < ready; i++) {
            if (events[i].data.u32 == STREAMS_MAX) {
                if (read(publishing, buffer, sizeof buffer) <= 0) die("the publisher's connection");
            } else if (!receive(&streams[events[i].data.u32])) {
                close(streams[events[i].data.u32].fd);
                closed++;
            }
        }
    }
    qsort(samples, samples_count, sizeof *samples, by_size);
    uint32_t p50 = 0, p99 = 0, most = 0;
    if (samples_count) {
        p50 = samples[samples_count / 2];
        p99 = samples[samples_count * 99 / 100];
        most = samples[samples_count - 1];
    }
    printf("ran %ld %f %f %f %zu %u %u %u %d %ld\n", counted, ended - began, load_cpu, server_cpu, samples_count, p50, p99,
           most, closed, lost);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    port = atoi(argv[1]);
    if (clock_getcpuclockid(atoi(argv[2]), &server_clock)) die("the server's clock");
    request_size = slurp(argv[3], request, sizeof request);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    samples = malloc(samples_room * sizeof *samples);
    epoll = epoll_create1(0);
#ifdef TLS
    tls = SSL_CTX_new(TLS_client_method());
#endif
    by_post = !strcmp(argv[4], "post");
    if (by_post) {
        post_size = slurp(argv[5], post, sizeof post);
        post_digits = strstr(post, MARKER) + MARKER_SIZE;
        publishing = connected(argc > 6 ? atoi(argv[6]) : port, 0);
        watch(publishing, STREAMS_MAX);
    } else if ((publishing = open(argv[5], O_WRONLY)) < 0) {
        die(argv[5]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        int count, stalled, at_once = IN_FLIGHT_MAX;
        double seconds, hz;
        if (sscanf(line, "open %d %d %d", &count, &stalled, &at_once) >= 2 && streams_count + count <= STREAMS_MAX)
            open_streams(count, stalled, at_once);
        else if (!strcmp(line, "ended\n"))
            await_ends();
        else if (sscanf(line, "run %lf %lf", &seconds, &hz) == 2)
            run(seconds, hz);
        else
            return 2;
    }
    return 0;
}
