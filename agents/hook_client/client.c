/* A hook of an agent's command line: client EVENT, with the hook's input on stdin.
 *
 * It hands the event to the supervisor at NIGHTCREW_AGENTS_SOCKET, and appends it to hooks.jsonl in NIGHTCREW_OUT when nobody takes it. Its
 * exit status is 0, whatever happens, and it prints nothing, since a command line would block a tool or feed the words to the model: but
 * before a tool is used it prints what the supervisor says of that, where it says something. client.py is the same without a compiler.
 *
 * Exit status without an EVENT: 64.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { INPUT_MAX = 192 * 1024, LINE_MAX_ = INPUT_MAX + 2048, KEPT_MAX = 4 * 1024 * 1024, ANSWER_MAX = 32 * 1024, USAGE = 64 };
enum { PATIENCE_S = 1 }; /* for the supervisor's answer: a hook holds the agent up */

static char input[INPUT_MAX + 1], line[LINE_MAX_], answer[ANSWER_MAX + 1];

/* The hook's input as one line; "null" when it is too long or there is none: the name of the event says enough. */
static const char *event(void) {
    size_t size = 0;
    ssize_t got;
    while (size <= INPUT_MAX) {
        got = read(0, input + size, sizeof input - size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size += (size_t)got;
    }
    while (size > INPUT_MAX && read(0, line, sizeof line) > 0) {
    } /* whoever writes it shall not meet a closed pipe */
    if (size == 0 || size > INPUT_MAX || memchr(input, '\0', size))
        return "null";
    input[size] = '\0';
    for (char *at = input; *at; at++)
        if (*at == '\n' || *at == '\r')
            *at = ' '; /* inside a JSON text these stand between words only */
    return input;
}

/* Only what stands in JSON as it is: anything else came from nobody who follows the contract. */
static int plain(const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at; at++)
        if (*at < 0x20 || *at > 0x7e || *at == '"' || *at == '\\')
            return 0;
    return strlen(text) < 512;
}

static int tell(const char *path, const char *token, const char *name, const char *shape) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = PATIENCE_S};
    if (strlen(path) >= sizeof address.sun_path)
        return 0;
    strcpy(address.sun_path, path);
    int length = snprintf(line, sizeof line, "{\"version\":\"\",\"verb\":\"hook\",\"token\":\"%s\",\"args\":{\"name\":\"%s\",\"event\":%s}}\n", token, name, shape);
    int door = socket(AF_UNIX, SOCK_STREAM, 0);
    if (door < 0 || length < 0 || (size_t)length >= sizeof line)
        return 0;
    setsockopt(door, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(door, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(door, (struct sockaddr *)&address, sizeof address) < 0)
        return 0;
    for (ssize_t sent, all = 0; all < length; all += sent)
        if ((sent = send(door, line + all, (size_t)(length - all), MSG_NOSIGNAL)) <= 0)
            return 0;
    size_t size = 0;
    for (ssize_t got; size < ANSWER_MAX && !memchr(answer, '\n', size); size += (size_t)got)
        if ((got = recv(door, answer + size, ANSWER_MAX - size, 0)) <= 0)
            break;
    answer[size] = '\0';
    return size > 0; /* refused is answered too: it would be refused again */
}

/* What the supervisor wants printed: the one value of its answer, as it stands there. Anything else, and a part of it, is nothing. */
static void say(void) {
    static const char before[] = "{\"ok\": true, \"value\": {\"print\": ", after[] = "}}\n";
    size_t size = strlen(answer), head = sizeof before - 1, tail = sizeof after - 1;
    if (size > head + tail && memcmp(answer, before, head) == 0 && strcmp(answer + size - tail, after) == 0)
        (void)!write(1, answer + head, size - head - tail);
}

static void keep(const char *folder, const char *name, const char *shape) {
    char path[4096];
    struct timeval now;
    struct stat seen;
    gettimeofday(&now, NULL);
    int length = snprintf(line, sizeof line, "{\"at\":%lld.%06ld,\"name\":\"%s\",\"event\":%s}\n", (long long)now.tv_sec, (long)now.tv_usec, name, shape);
    if (length < 0 || (size_t)length >= sizeof line || snprintf(path, sizeof path, "%s/hooks.jsonl", folder) >= (int)sizeof path)
        return;
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (file >= 0 && fstat(file, &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_size + length <= KEPT_MAX)
        (void)!write(file, line, (size_t)length);
}

int main(int argc, char **argv) {
    const char *path = getenv("NIGHTCREW_AGENTS_SOCKET"), *token = getenv("NIGHTCREW_TOKEN"), *folder = getenv("NIGHTCREW_OUT");
    if (argc < 2 || !*argv[1] || !plain(argv[1]))
        return USAGE;
    const char *shape = event();
    if (!path || !token || !plain(token) || !tell(path, token, argv[1], shape))
        if (folder)
            keep(folder, argv[1], shape);
    if (strcmp(argv[1], "PreToolUse") == 0)
        say();
    return 0;
}
