/* Keep-alive connections that each ask for one file again when they have all of it.

     load PORT CONNECTIONS SECONDS HOST PATH

   Prints how many answers came, in how many seconds, the load's own CPU seconds, and the bytes of one body. With SECONDS
   negative it asks once on each connection, reads nothing, says `stalled`, and waits for its standard input to end. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 1024, HEAD_MAX = 4096, PIECE = 1 << 18 };

struct peer {
    char head[HEAD_MAX];
    int head_filled;
    long left; /* of the body; -1: its head is not whole */
};

static struct pollfd polls[CONNECTIONS_MAX];
static struct peer peers[CONNECTIONS_MAX];
static char piece[PIECE];
static long body_bytes = -1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Takes what was read; returns whether the answer is whole. */
static int take(struct peer *peer, const char *data, long count) {
    if (peer->left < 0) {
        long room = HEAD_MAX - 1 - peer->head_filled, copied = count < room ? count : room;
        memcpy(peer->head + peer->head_filled, data, copied);
        peer->head[peer->head_filled + copied] = 0;
        char *end = strstr(peer->head, "\r\n\r\n");
        if (!end) {
            if (copied == room) fail("head too long");
            peer->head_filled += copied;
            return 0;
        }
        char *length = strcasestr(peer->head, "\r\ncontent-length: ");
        if (!length || strncmp(peer->head, "HTTP/1.1 200", 12)) fail(peer->head);
        long of_head = end + 4 - peer->head - peer->head_filled;
        peer->left = atol(length + 18);
        if (body_bytes >= 0 && body_bytes != peer->left) fail("another length");
        body_bytes = peer->left;
        count -= of_head;
    }
    peer->left -= count;
    if (peer->left < 0) fail("more than the whole");
    if (peer->left) return 0;
    peer->left = -1;
    peer->head_filled = 0;
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 6) fail("load PORT CONNECTIONS SECONDS HOST PATH");
    int port = atoi(argv[1]), count = atoi(argv[2]);
    double seconds = atof(argv[3]);
    char request[1024];
    int size = snprintf(request, sizeof request,
        "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\n\r\n",
        argv[5], argv[4]);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < count; i++) {
        polls[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        polls[i].events = POLLIN;
        peers[i].left = -1;
        if (connect(polls[i].fd, (struct sockaddr *)&to, sizeof to)) fail("connect");
        if (write(polls[i].fd, request, size) != size) fail("write");
    }
    if (seconds < 0) {
        puts("stalled");
        fflush(stdout);
        while (read(0, piece, sizeof piece) > 0);
        return 0;
    }
    long done = 0;
    double began = now(), ended = began;
    while (ended - began < seconds) {
        if (poll(polls, count, 1000) < 0) fail("poll");
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents) continue;
            ssize_t got = read(polls[i].fd, piece, sizeof piece);
            if (got <= 0) fail("closed");
            if (!take(&peers[i], piece, got)) continue;
            done++;
            if (write(polls[i].fd, request, size) != size) fail("write");
        }
        ended = now();
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("%ld %f %f %ld\n", done, ended - began, cpu, body_bytes);
    return 0;
}
