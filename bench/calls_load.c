/* The load of bench/calls.py: keep-alive callers, each sending its next request when it has the whole answer. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CALLERS_MAX 1024
#define TIMES_MAX 10000000
typedef struct { char *request, *wanted; uint32_t size; } Call;  /* `wanted` is in the body of the right answer */
typedef struct { char answer[8192]; int filled; Call *call; double asked; } Caller;

static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }
static int ascending(const void *a, const void *b) { float x = *(float *)a, y = *(float *)b; return (x > y) - (x < y); }
static void stop(const char *why) { fprintf(stderr, "the load stopped: %s\n", why); exit(1); }
static void ask(int fd, Call *call) { if (write(fd, call->request, call->size) != call->size) stop("short write"); }

int main(int argc, char **argv) {
    int port = atoi(argv[1]), count = atoi(argv[2]), calls = 0, open = 0, next = 0;
    double seconds = atof(argv[3]);
    Call *all = NULL;
    FILE *file = fopen(argv[4], "rb");
    for (uint32_t sizes[2]; file && fread(sizes, 4, 2, file) == 2; calls++) {
        all = realloc(all, (calls + 1) * sizeof *all);
        all[calls].size = sizes[0];
        all[calls].request = malloc(sizes[0]);
        all[calls].wanted = calloc(sizes[1] + 1, 1);
        if (fread(all[calls].request, 1, sizes[0], file) + fread(all[calls].wanted, 1, sizes[1], file)
            != sizes[0] + sizes[1]) stop("the calls are cut short");
    }
    if (!calls || count > CALLERS_MAX) stop("no calls, or too many callers");
    static struct pollfd polls[CALLERS_MAX];
    static Caller callers[CALLERS_MAX];
    static float times_ms[TIMES_MAX];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0, one = 1; i < count; i++) {
        polls[i].fd = socket(AF_INET, SOCK_STREAM, 0);
        polls[i].events = POLLIN;
        setsockopt(polls[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (connect(polls[i].fd, (struct sockaddr *)&to, sizeof to)) stop("cannot connect");
    }
    long done = 0;
    double began = now(), ended = began;
    for (int i = 0; i < count; i++, open++) {
        Caller *caller = &callers[i];
        caller->call = &all[next++ % calls];
        caller->asked = now();
        ask(polls[i].fd, caller->call);
    }
    while (open) {  /* after the time is up, until every call has its answer */
        if (poll(polls, count, 10000) <= 0) stop("no answer for 10 s");
        for (int i = 0; i < count; i++) {
            if (!polls[i].revents) continue;
            Caller *caller = &callers[i];
            char *answer = caller->answer;
            ssize_t got = read(polls[i].fd, answer + caller->filled, sizeof caller->answer - 1 - caller->filled);
            if (got <= 0) stop("the server closed a connection");
            caller->filled += got;
            answer[caller->filled] = 0;
            char *end = strstr(answer, "\r\n\r\n"), *length = strcasestr(answer, "\r\ncontent-length: ");
            if (!end) continue;
            if (strncmp(answer, "HTTP/1.1 200", 12)) stop(answer);
            if (length && length < end) {
                if (caller->filled < end + 4 - answer + atoi(length + 18)) continue;
            } else if (strcmp(answer + caller->filled - 5, "0\r\n\r\n")) continue;  /* in chunks, for a stream */
            if (!strstr(end, caller->call->wanted)) stop(answer);
            ended = now();
            if (done < TIMES_MAX) times_ms[done] = (ended - caller->asked) * 1e3;
            done++;
            caller->filled = 0;
            if (ended - began >= seconds) { open--; continue; }
            caller->call = &all[next++ % calls];
            caller->asked = ended;
            ask(polls[i].fd, caller->call);
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    long timed = done < TIMES_MAX ? done : TIMES_MAX;
    qsort(times_ms, timed, sizeof *times_ms, ascending);
    printf("%ld %f %f %f %f\n", done, ended - began, cpu, times_ms[timed / 2], times_ms[timed * 99 / 100]);
    return 0;
}
