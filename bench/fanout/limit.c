// The limit of bench.fanout: a loop of write() over all sockets, and nothing else; no rules, no protocol, no look at
// what the clients take.
//
//   limit EVENT_FILE FIFO      prints its port; each stamp (16 digits) from the FIFO is put into the event and sent
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define STREAMS_MAX 20000
#define MARKER "\"mem_bytes\":"
#define STAMP_SIZE 16

static const char head[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-store\r\n"
    "x-accel-buffering: no\r\nconnection: close\r\n\r\n";
static int streams[STREAMS_MAX], count;
static char event[4096], *digits;
static size_t event_size;

static void publish(const char *stamp) {
    memcpy(digits, stamp, STAMP_SIZE);
    for (int i = 0; i < count; i++) {
        size_t done = 0;
        while (done < event_size) {
            ssize_t sent = write(streams[i], event + done, event_size - done);
            if (sent >= 0) {
                done += sent;
            } else if (errno == EAGAIN) {
                struct pollfd full = {.fd = streams[i], .events = POLLOUT};
                poll(&full, 1, 1000);
            } else {
                streams[i--] = streams[--count];
                break;
            }
        }
    }
}

static void admit(int listener) {
    char request[8192];
    int one = 1;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) return;
    if (read(fd, request, sizeof request) <= 0 || write(fd, head, sizeof head - 1) < 0 || count == STREAMS_MAX) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    streams[count++] = fd;
}

int main(int argc, char **argv) {
    FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL;
    if (!file) return 2;
    event_size = fread(event, 1, sizeof event - 1, file);
    digits = strstr(event, MARKER) + sizeof MARKER - 1;
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&at, size) || listen(listener, 1024)) return 1;
    getsockname(listener, (struct sockaddr *)&at, &size);
    int fifo = open(argv[2], O_RDWR | O_NONBLOCK);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    for (;;) {
        struct pollfd polls[2] = {{.fd = fifo, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
        poll(polls, 2, -1);
        char stamp[STAMP_SIZE];
        if (polls[0].revents && read(fifo, stamp, STAMP_SIZE) == STAMP_SIZE) publish(stamp);
        if (polls[1].revents) admit(listener);
    }
}
