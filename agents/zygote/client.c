/* The client in an agent's pane: client SOCKET COLD_COMMAND... ATTEMPT_DIR
 *
 * It hands its terminal and environment to the zygote at SOCKET, which forks the attempt's runner, and then waits to exit with
 * the runner's status. When the zygote is not there or starts nothing, it becomes COLD_COMMAND instead: two runners of one attempt cannot
 * both start, because the first one claims the epoch. wire.py says what is spoken, and what makes it safe to stop waiting for a zygote
 * that hangs or was stopped. client.py is the same without a compiler.
 *
 * Exit status: the runner's; 64 usage, 70 the runner's status was lost with zygote and runner.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifdef __linux__
#define KIND SOCK_SEQPACKET
#else
#define KIND SOCK_STREAM
#endif
enum { REQUEST_MAX = 128 * 1024, ANSWER = 128, USAGE = 64, NO_STATUS = 70 };
enum { PATIENCE_S = 10 }; /* for each step until a runner is there; a fork takes milliseconds, and nothing is lost by going on without */

extern char **environ;
static const int relayed[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
static volatile sig_atomic_t runner, pending;
static char request[REQUEST_MAX];
static size_t size = sizeof(uint32_t); /* the length stands in front */

static void relay(int number) {
    int saved = errno;
    pending = number;
    if (runner > 0)
        kill(runner, number);
    errno = saved;
}

static void handle_signals(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    for (size_t i = 0; i < sizeof relayed / sizeof *relayed; i++)
        sigaction(relayed[i], &action, NULL);
}

static void start_cold(const char *why, const char *detail, int led, char **argv) {
    dprintf(2, "nightcrew: %s%s; starting cold\n", why, detail);
    if (led)
        ioctl(0, TIOCSCTTY, 0);
    handle_signals(SIG_DFL);
    if (pending)
        raise(pending);
    execv(argv[2], argv + 2);
    dprintf(2, "nightcrew: %s: %s\n", argv[2], strerror(errno));
    _exit(NO_STATUS);
}

static int add(const char *key, const char *value) {
    size_t key_size = strlen(key), value_size = strlen(value) + 1;
    if (size + key_size + value_size > sizeof request)
        return 0;
    memcpy(request + size, key, key_size);
    memcpy(request + size + key_size, value, value_size);
    size += key_size + value_size;
    return 1;
}

static int write_request(const char *directory) {
    if (!add("dir=", directory))
        return 0;
    for (char **entry = environ; *entry; entry++)
        if (!add("env=", *entry))
            return 0;
    uint32_t length = (uint32_t)(size - sizeof(uint32_t));
    memcpy(request, &length, sizeof length);
    return 1;
}

/* The request with our handles 0, 1, 2; a stream may take it in pieces. */
static int send_request(int zygote) {
    int handles[] = {0, 1, 2};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof handles)];
    } control = {0};
    struct iovec data = {request, size};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof handles);
    memcpy(CMSG_DATA(header), handles, sizeof handles);
    ssize_t sent, all = 0;
    do
        sent = sendmsg(zygote, &message, 0);
    while (sent < 0 && errno == EINTR);
    while (sent > 0 && (all += sent) < (ssize_t)size)
        do
            sent = send(zygote, request + all, size - (size_t)all, 0);
        while (sent < 0 && errno == EINTR);
    return sent > 0;
}

static void give_up_after(int zygote, int seconds) {
    struct timeval time = {.tv_sec = seconds}; /* 0: never */
    setsockopt(zygote, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
    setsockopt(zygote, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

static const char *reason(void) {
    return errno == EAGAIN ? "not in time" : errno ? strerror(errno) : "it ended";
}

/* The next answer's word is compared with `word`; its value, or NULL. An end of the connection is an empty answer. */
static const char *answer(int zygote, const char *word, int flags) {
    static char text[ANSWER + 1];
    ssize_t got;
    errno = 0;
    do
        got = recv(zygote, text, ANSWER, flags);
    while (got < 0 && errno == EINTR);
    if (got != ANSWER)
        text[0] = '\0';
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && text[length] == ' ' ? text + length + 1 : text[0] == 'n' ? text : NULL;
}

/* As `answer`; without one in time the request is taken back. A runner that does not know it yet has said its pid before. */
static const char *first_answer(int zygote) {
    const char *pid = answer(zygote, "pid", MSG_WAITALL);
    if (pid)
        return pid;
    shutdown(zygote, SHUT_WR);
    return answer(zygote, "pid", MSG_DONTWAIT);
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (argc < 4) {
        dprintf(2, "nightcrew: usage: client SOCKET COLD_COMMAND ATTEMPT_DIR\n");
        return USAGE;
    }
    if (strlen(argv[1]) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        start_cold("the warm process does not answer: ", reason(), 0, argv);
    }
    strcpy(address.sun_path, argv[1]);
    int zygote = socket(AF_UNIX, KIND, 0);
    fcntl(zygote, F_SETFD, FD_CLOEXEC);
    give_up_after(zygote, PATIENCE_S);
    if (connect(zygote, (struct sockaddr *)&address, sizeof address) < 0)
        start_cold("the warm process does not answer: ", reason(), 0, argv);
    if (!write_request(argv[argc - 1]))
        start_cold("the environment is too large to hand over", "", 0, argv);

    signal(SIGHUP, SIG_IGN); /* giving the terminal up sends it */
    int led = getsid(0) == getpid() && isatty(0) && ioctl(0, TIOCNOTTY, 0) == 0;
    signal(SIGPIPE, SIG_IGN);
    handle_signals(relay);

    if (!send_request(zygote))
        start_cold("the warm process does not answer: ", reason(), led, argv);
    const char *value = first_answer(zygote);
    if (!value)
        start_cold("the warm process does not answer: ", reason(), led, argv);
    if (value[0] != 'n') {
        runner = atoi(value);
        if (pending)
            kill(runner, pending);
        give_up_after(zygote, 0);
        value = answer(zygote, "end", MSG_WAITALL);
        if (!value || value[0] != 'n')
            return value ? atoi(value) : NO_STATUS;
    }
    start_cold("the warm process refused: ", value + 3, led, argv);
}
