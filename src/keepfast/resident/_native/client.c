/* keepfast-hook: hands a hook's event to the resident process, and runs the hook in a Python of its own if that fails.
 *
 *     keepfast-hook LAUNCHER PROGRAM HOME CONFIG DATA hook AGENT [OPTION VALUE]...
 *
 * LAUNCHER is the shell script that started us (agents/launcher.py); with `unaided` as its first argument it does not start
 * us again. PROGRAM is the launch.py that it runs: the resident must be of the same installation. docs/resident.md has the protocol. Every failure ends in that script: nothing here may cost an event, and the
 * exit code is never 2.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mman.h>
#include <sys/random.h>
#endif

#ifndef O_PATH
#define O_PATH (O_RDONLY | O_DIRECTORY)
#endif
#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

enum {
    ACCEPT_MS = 1000,       /* until the resident has received the request */
    ANSWER_MS = 10000,      /* until it has answered */
    MAX_PAYLOAD = 16 << 20, /* a larger one is not sent */
    MAX_ANSWER = 4 << 20,
    ID_CHARS = 32,
    OWN_WORDS = 5, /* LAUNCHER to DATA */
};

static const char NONE[] = "none";         /* there is no resident */
static const char DECLINED[] = "declined"; /* it left this event to us */
static const char LATE[] = "late";         /* it did not answer in time, or ended */
static const char SUPERVISED[] = "supervised";

static char **words; /* our arguments, from LAUNCHER on */
static int count;
static char event_id[ID_CHARS + 1];

struct text {
    char *data;
    size_t size, room;
};

static struct text payload;
static int payload_rest; /* is there more on standard input? */

static int append(struct text *text, const void *data, size_t size)
{
    if (text->size + size > text->room) {
        size_t room = (text->size + size) * 2;
        char *larger = realloc(text->data, room);
        if (larger == NULL)
            return -1;
        text->data = larger;
        text->room = room;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
    return 0;
}

static int append_number(struct text *text, uint64_t number, int bytes)
{
    unsigned char raw[8];
    for (int i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(number >> (8 * i));
    return append(text, raw, (size_t)bytes);
}

static int append_field(struct text *text, const char *data, size_t size)
{
    return append_number(text, size, 4) || append(text, data, size) ? -1 : 0;
}

static uint32_t number_at(const char *data)
{
    const unsigned char *raw = (const unsigned char *)data;
    return raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t done = write(fd, data, size);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        data += done;
        size -= (size_t)done;
    }
    return 0;
}

/* Read standard input, up to the size that is sent to a resident. */
static int read_payload(void)
{
    static char part[65536];
    for (;;) {
        ssize_t got = read(0, part, sizeof part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return 0;
        if (append(&payload, part, (size_t)got))
            return -1;
        if (payload.size > MAX_PAYLOAD) {
            payload_rest = 1;
            return 0;
        }
    }
}

/* Return a file without a name. */
static int unnamed_file(void)
{
#ifdef __linux__
    int memory = memfd_create("payload", MFD_CLOEXEC);
    if (memory >= 0)
        return memory;
#endif
    FILE *file = tmpfile();
    return file == NULL ? -1 : fileno(file);
}

/* Make the whole payload standard input again. */
static void put_payload_back(void)
{
    int file = unnamed_file();
    if (file < 0 || write_all(file, payload.data, payload.size))
        _exit(0);
    static char part[65536];
    while (payload_rest) {
        ssize_t got = read(0, part, sizeof part);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        if (write_all(file, part, (size_t)got))
            _exit(0);
    }
    if (lseek(file, 0, SEEK_SET) < 0 || dup2(file, 0) < 0)
        _exit(0);
}

/* Run the hook in a Python of its own; the launcher knows how. `why` is one of the words above. */
static void run_unaided(const char *why)
{
    char **arguments = calloc((size_t)count + 8, sizeof *arguments);
    if (arguments == NULL)
        _exit(0);
    int n = 0;
    arguments[n++] = "sh";
    arguments[n++] = words[0];
    arguments[n++] = "unaided";
    for (int i = OWN_WORDS; i < count; i++)
        arguments[n++] = words[i];
    arguments[n++] = "--event";
    arguments[n++] = event_id;
    arguments[n++] = "--resident";
    arguments[n++] = (char *)why;
    put_payload_back();
    execv("/bin/sh", arguments);
    _exit(0);
}

static void make_event_id(void)
{
    unsigned char raw[ID_CHARS / 2];
    size_t got = 0;
#ifdef __linux__
    ssize_t random_bytes = getrandom(raw, sizeof raw, GRND_NONBLOCK);
    got = random_bytes > 0 ? (size_t)random_bytes : 0;
#else
    arc4random_buf(raw, sizeof raw);
    got = sizeof raw;
#endif
    if (got < sizeof raw) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        uint64_t numbers[2] = {(uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, (uint64_t)getpid()};
        memcpy(raw, numbers, sizeof raw);
    }
    for (size_t i = 0; i < sizeof raw; i++)
        snprintf(event_id + 2 * i, 3, "%02x", raw[i]);
}

/* Read the socket's path from the lock file into `address`; -1 if there is none that is ours. */
static int read_address(const char *data, struct sockaddr_un *address)
{
    char path[4096], text[1024];
    if (snprintf(path, sizeof path, "%s/keepfast/resident/lock", data) >= (int)sizeof path)
        return -1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    struct stat seen;
    ssize_t size = -1;
    if (fstat(fd, &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_uid == geteuid())
        size = read(fd, text, sizeof text - 1);
    close(fd);
    if (size <= 0)
        return -1;
    text[size] = 0;
    /* Three lines: the protocol, the process id, the socket. */
    char *second = strchr(text, '\n'), *third = second == NULL ? NULL : strchr(second + 1, '\n');
    char *end = third == NULL ? NULL : strchr(third + 1, '\n');
    if (end == NULL || strncmp(text, "KFR1\n", 5) != 0)
        return -1;
    *end = 0;
    if (strlen(third + 1) >= sizeof address->sun_path)
        return -1;
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    strcpy(address->sun_path, third + 1);
    return 0;
}

/* Return whether the process at the other end belongs to this user. */
static int is_own_peer(int fd)
{
#ifdef SO_PEERCRED
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
#else
    uid_t user;
    gid_t group;
    return getpeereid(fd, &user, &group) == 0 && user == geteuid();
#endif
}

static int is_passed_on(const char *variable)
{
    static const char *const starts[] = {"CLAUDE", "LC_", "LANG", "KEEPFAST_", "NO_COLOR=", "PATH="};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(variable, starts[i], strlen(starts[i])) == 0)
            return 1;
    return 0;
}

static int make_request(struct text *request)
{
    extern char **environ;
    static char folder[4096];
    struct text head = {0}, arguments = {0};
    uint32_t fields = 3;
    if (getcwd(folder, sizeof folder) == NULL)
        return -1;
    for (int i = 0; i < count; i++)
        if (append(&arguments, words[i], strlen(words[i]) + 1))
            return -1;
    for (char **variable = environ; *variable != NULL; variable++)
        fields += (uint32_t)is_passed_on(*variable);
    if (append_number(&head, fields, 4) || append_field(&head, event_id, ID_CHARS) ||
        append_field(&head, folder, strlen(folder)) || append_field(&head, arguments.data, arguments.size - 1))
        return -1;
    for (char **variable = environ; *variable != NULL; variable++)
        if (is_passed_on(*variable) && append_field(&head, *variable, strlen(*variable)))
            return -1;
    if (append(request, "KFR1", 4) || append_number(request, head.size, 4) || append_number(request, payload.size, 8))
        return -1;
    return append(request, head.data, head.size) || append(request, payload.data, payload.size) ? -1 : 0;
}

/* Wait until the socket is ready; 0 if it is not in time. */
static int ready(int fd, short events, int64_t end)
{
    for (;;) {
        int64_t rest = end - now_ms();
        if (rest <= 0)
            return 0;
        struct pollfd polled = {.fd = fd, .events = events};
        int result = poll(&polled, 1, (int)rest);
        if (result > 0)
            return 1;
        if (result == 0 || errno != EINTR)
            return 0;
    }
}

/* Send the request; the descriptor of the current folder goes with the first byte. */
static int send_request(int fd, const struct text *request, int folder, int64_t end)
{
    size_t sent = 0;
    while (sent < request->size) {
        struct iovec part = {request->data + sent, request->size - sent};
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (sent == 0) {
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &folder, sizeof folder);
        }
        ssize_t done = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (done >= 0)
            sent += (size_t)done;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!ready(fd, POLLOUT, end))
                return -1;
        } else if (errno != EINTR)
            return -1;
    }
    return 0;
}

static int receive(int fd, char *data, size_t size, int64_t end)
{
    while (size > 0) {
        ssize_t got = recv(fd, data, size, 0);
        if (got > 0) {
            data += got;
            size -= (size_t)got;
        } else if (got == 0)
            return -1;
        else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!ready(fd, POLLIN, end))
                return -1;
        } else if (errno != EINTR)
            return -1;
    }
    return 0;
}

/* Ask the resident; return why there is no answer. Ends the process if there is one. */
static const char *ask(void)
{
    struct sockaddr_un address;
    struct text request = {0};
    if (read_address(words[OWN_WORDS - 1], &address))
        return NONE;
    int folder = open(".", O_PATH | O_CLOEXEC), fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (folder < 0 || fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return NONE;
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        return errno == EAGAIN ? LATE : NONE;
    if (!is_own_peer(fd))
        return NONE;
    if (make_request(&request))
        return DECLINED;
    int64_t began = now_ms();
    char kind, numbers[12];
    if (send_request(fd, &request, folder, began + ACCEPT_MS) || receive(fd, &kind, 1, began + ACCEPT_MS))
        return LATE;
    if (kind == 'W' && receive(fd, &kind, 1, began + ANSWER_MS))
        return LATE;
    if (kind != 'A')
        return kind == 'N' ? DECLINED : LATE;
    if (receive(fd, numbers, sizeof numbers, began + ANSWER_MS))
        return LATE;
    uint32_t code = number_at(numbers), output = number_at(numbers + 4), errors = number_at(numbers + 8);
    if (output > MAX_ANSWER || errors > MAX_ANSWER)
        return LATE;
    char *texts = malloc((size_t)output + errors + 1);
    if (texts == NULL || receive(fd, texts, (size_t)output + errors, began + ANSWER_MS))
        return LATE;
    write_all(2, texts + output, errors);
    write_all(1, texts, output);
    _exit(code == 1 ? 1 : 0);
}

int main(int argc, char **argv)
{
    if (argc < OWN_WORDS + 3)
        return 0;
    words = argv + 1;
    count = argc - 1;
    make_event_id();
    if (read_payload()) {
        payload_rest = 0;
        run_unaided(NONE);
    }
    if (getenv("KEEPFAST_RUN") != NULL || getenv("KEEPFAST_SUPERVISED") != NULL)
        run_unaided(SUPERVISED);
    if (payload_rest)
        run_unaided(DECLINED);
    run_unaided(ask());
}
