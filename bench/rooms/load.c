// The load of bench.rooms: thousands of WebSocket clients in many rooms, in one thread on one epoll.
//
//   load PORT SERVER_PID TARGETS_FILE       a request target a line: the rooms
//
// Orders come on standard input, one a line, and each is answered by a line:
//   open COUNT SIZE           COUNT more connections, SIZE into each room; each has its place when it got a first frame
//       -> opened COUNT SECONDS SERVER_CPU_S
//   run SECONDS HZ SPEAKERS   HZ > 0: so many messages a second in all, the rooms by turns; 0: so many members of each
//                             room say something at once, and the next ones when all of the room have it
//       -> ran DELIVERIES SECONDS LOAD_CPU_S SERVER_CPU_S SAMPLES P50_US P99_US MAX_US MISSING
//
// A message carries CLOCK_MONOTONIC in microseconds as sixteen digits, and everybody but its sender gets it back after
// MARKER. Latency is from just before write() to just after the read() that brought it. Frames are masked with a key
// that changes, so that the server has to unmask them.
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

#define PEOPLE_MAX 20000
#define ROOMS_MAX 2000
#define OPENING_MAX 64
#define EVENTS_MAX 512
#define CARRY_MAX 4096
#define MARKER "\"stamp\""
#define DIGITS 16
#define GRACE_S 0.5  // after a run, for frames under way
#define STUCK_S 20.0

enum { ASKED, UPGRADED, THERE };
struct person {
    int fd, room, state, carried;
    char carry[CARRY_MAX];  // of the head or of a frame that a read cut in two
};
struct room {
    int first, members, turn, missing;  // missing: deliveries of what was sent last
    char target[128];
};

static const char TEXT[] = "{\"type\":\"msg\",\"data\":{" MARKER ":\"0000000000000000\",\"text\":"
    "\"The quick brown fox jumps over the lazy dog, and the lazy dog does not mind at all.\"}}";
static struct person people[PEOPLE_MAX];
static struct room rooms[ROOMS_MAX];
static int people_count, rooms_count, rooms_used, port, epoll;
static clockid_t server_clock;
static uint32_t *samples, mask = 0x1badcafe;
static size_t samples_count, samples_room = 1 << 20;
static uint64_t sample_from_us, sample_until_us;
static long deliveries, missing;
static char buffer[CARRY_MAX + (64 << 10)];

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static double now(void) { return seconds_of(CLOCK_MONOTONIC); }

static void die(const char *what) {
    perror(what);
    exit(1);
}
static void refuse(const char *what, const char *data, size_t size) {
    fprintf(stderr, "%s: %.*s\n", what, (int)size, data);
    exit(1);
}

static size_t framed(char *into, unsigned char head, const char *data, size_t size) {
    size_t at = 0;
    into[at++] = head;
    if (size < 126) {
        into[at++] = 0x80 | size;
    } else {
        into[at++] = 0x80 | 126;
        into[at++] = size >> 8;
        into[at++] = size;
    }
    mask = mask * 1664525 + 1013904223;
    memcpy(into + at, &mask, 4);
    const char *key = into + at;
    at += 4;
    for (size_t i = 0; i < size; i++) into[at + i] = data[i] ^ key[i % 4];
    return at + size;
}

static void say(struct room *room) {
    char frame[sizeof TEXT + 8], text[sizeof TEXT], digits[DIGITS + 1];
    struct person *sender = &people[room->first + room->turn];
    room->turn = (room->turn + 1) % room->members;
    snprintf(digits, sizeof digits, "%016llu", (unsigned long long)(now() * 1e6));
    memcpy(text, TEXT, sizeof text);
    memcpy(strstr(text, MARKER) + sizeof MARKER - 1 + 2, digits, DIGITS);
    size_t size = framed(frame, 0x81, text, sizeof text - 1);
    room->missing += room->members - 1;
    missing += room->members - 1;
    if (write(sender->fd, frame, size) != (ssize_t)size) die("write");
}

static void take_message(struct room *room, const char *digits, uint64_t at_us) {
    uint64_t sent_us = strtoull(digits, NULL, 10);
    deliveries++;
    missing--;
    room->missing--;
    if (sent_us < sample_from_us || sent_us >= sample_until_us) return;
    if (samples_count == samples_room) {
        samples_room *= 2;
        samples = realloc(samples, samples_room * sizeof *samples);
        if (!samples) die("realloc");
    }
    samples[samples_count++] = at_us > sent_us ? at_us - sent_us : 0;
}

static void take_frame(struct person *person, const char *frame, const char *data, size_t size, uint64_t at_us) {
    switch (frame[0] & 0x0f) {
    case 1:
        if (person->state == UPGRADED) {
            person->state = THERE;
            return;
        }
        const char *marker = memmem(data, size, MARKER, sizeof MARKER - 1);
        if (!marker) refuse("not a message", data, size);
        const char *digits = memchr(marker + sizeof MARKER - 1, '"', size);
        take_message(&rooms[person->room], digits + 1, at_us);
        return;
    case 9: {
        char pong[256];
        size_t pong_size = framed(pong, 0x8a, data, size);
        if (write(person->fd, pong, pong_size) != (ssize_t)pong_size) die("pong");
        return;
    }
    default:
        refuse("a frame of another kind", data, size);
    }
}

static void receive(struct person *person) {
    memcpy(buffer, person->carry, person->carried);
    ssize_t got = read(person->fd, buffer + person->carried, sizeof buffer - CARRY_MAX - 1);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("the server closed a connection");
    uint64_t at_us = now() * 1e6;
    char *at = buffer, *end = buffer + person->carried + got;
    *end = 0;
    if (person->state == ASKED) {
        char *frames = strstr(buffer, "\r\n\r\n");
        if (frames && strncmp(buffer, "HTTP/1.1 101", 12)) refuse("refused", buffer, end - buffer);
        if (frames) {
            person->state = UPGRADED;
            at = frames + 4;
        }
    }
    while (person->state != ASKED && end - at >= 2) {
        size_t head = 2, size = at[1] & 0x7f;
        if (size == 126) {
            if (end - at < 4) break;
            head = 4;
            size = ((unsigned char)at[2] << 8) | (unsigned char)at[3];
        } else if (size == 127) {
            refuse("a long frame", at, 2);
        }
        if ((size_t)(end - at) < head + size) break;
        take_frame(person, at, at + head, size, at_us);
        at += head + size;
    }
    person->carried = end - at;
    if (person->carried > CARRY_MAX) refuse("too long", at, end - at);
    memcpy(person->carry, at, person->carried);
}

static void ask(int size) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct person *person = &people[people_count];
    int one = 1, index = people_count == 0 ? 0 : people[people_count - 1].room;
    if (rooms[index].members == size) index++;
    if (index >= rooms_count) die("more rooms than targets");
    if (rooms[index].members++ == 0) rooms[index].first = people_count;
    rooms_used = index + 1;
    person->room = index;
    person->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (person->fd < 0) die("socket");
    setsockopt(person->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(person->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
    fcntl(person->fd, F_SETFL, O_NONBLOCK);
    char request[512];
    int bytes = snprintf(request, sizeof request,
        "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", rooms[index].target);
    if (write(person->fd, request, bytes) != bytes) die("write");
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = people_count};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, person->fd, &event)) die("epoll_ctl");
    people_count++;
}

static void open_more(int count, int size) {
    double began = now(), server_cpu = seconds_of(server_clock);
    struct epoll_event events[EVENTS_MAX];
    for (int asked = 0, there = 0; there < count;) {
        for (; asked < count && asked - there < OPENING_MAX; asked++) ask(size);
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 60000);
        if (ready <= 0) die("nothing for a minute");
        for (int i = 0; i < ready; i++) {
            struct person *person = &people[events[i].data.u32];
            int was = person->state;
            receive(person);
            there += was != THERE && person->state == THERE;
        }
    }
    printf("opened %d %f %f\n", count, now() - began, seconds_of(server_clock) - server_cpu);
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void run(double seconds, double hz, int speakers) {
    struct epoll_event events[EVENTS_MAX];
    double began = now(), until = began + seconds, due = began, ended = 0, heard = began;
    double load_cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), server_cpu = seconds_of(server_clock);
    long counted = 0;
    int next = 0;
    deliveries = samples_count = 0;
    sample_from_us = began * 1e6;
    sample_until_us = until * 1e6;
    for (double at = began; at < until || (missing && at < until + GRACE_S); at = now()) {
        for (int i = 0; i < rooms_used && hz == 0; i++)
            for (int left = rooms[i].missing ? 0 : speakers; left > 0; left--) say(&rooms[i]);
        for (; hz > 0 && due <= at && due < until; due += 1 / hz) say(&rooms[next++ % rooms_used]);
        int ready = epoll_wait(epoll, events, EVENTS_MAX, 1);
        if (ready > 0) heard = now();
        if (now() - heard > STUCK_S && missing) die("deliveries are missing");
        for (int i = 0; i < ready; i++) receive(&people[events[i].data.u32]);
        if (!ended && now() >= until) {
            ended = now();
            counted = deliveries;
            load_cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - load_cpu;
            server_cpu = seconds_of(server_clock) - server_cpu;
            hz = -1;  // no more of them
        }
    }
    qsort(samples, samples_count, sizeof *samples, by_size);
    uint32_t p50 = 0, p99 = 0, most = 0;
    if (samples_count) {
        p50 = samples[samples_count / 2];
        p99 = samples[samples_count * 99 / 100];
        most = samples[samples_count - 1];
    }
    printf("ran %ld %f %f %f %zu %u %u %u %ld\n", counted, ended - began, load_cpu, server_cpu, samples_count, p50, p99,
           most, missing);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    port = atoi(argv[1]);
    if (clock_getcpuclockid(atoi(argv[2]), &server_clock)) die("the server's clock");
    FILE *targets = fopen(argv[3], "r");
    if (!targets) die(argv[3]);
    while (rooms_count < ROOMS_MAX && fscanf(targets, "%127s", rooms[rooms_count].target) == 1) rooms_count++;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    samples = malloc(samples_room * sizeof *samples);
    epoll = epoll_create1(0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        int count, size, speakers;
        double seconds, hz;
        if (sscanf(line, "open %d %d", &count, &size) == 2 && people_count + count <= PEOPLE_MAX)
            open_more(count, size);
        else if (sscanf(line, "run %lf %lf %d", &seconds, &hz, &speakers) == 3)
            run(seconds, hz, speakers);
        else
            return 2;
    }
    return 0;
}
