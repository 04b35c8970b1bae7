// SPDX-License-Identifier: LGPL-2.1-or-later
/* The stream of wire.h over a Unix socket. All waiting is by poll, so that every wait has an end.
 */
#include "client/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILES 5

/* Room for more files than any message has: what a broken peer sends is closed, not leaked. */
union control {
	struct cmsghdr align;
	char bytes[CMSG_SPACE(MAX_FILES * sizeof(int))];
};

uint64_t kv_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

int kv_stream_wait(const struct kv_stream *stream, int fd, short events, uint64_t deadline_ns)
{
	struct pollfd polled[2] = {
		{.fd = fd, .events = events},
		{.fd = stream->wake_fd, .events = POLLIN},
	};

	for (;;) {
		uint64_t now = kv_now_ns();
		uint64_t left_ms = 0;
		int timeout = -1;
		int nr;

		if (deadline_ns != KV_NO_DEADLINE) {
			if (deadline_ns > now)
				left_ms = (deadline_ns - now + KV_NS_PER_MS - 1) / KV_NS_PER_MS;
			timeout = left_ms > INT32_MAX ? INT32_MAX : (int)left_ms;
		}
		nr = poll(polled, 2, timeout);
		if (nr < 0 && errno != EINTR)
			return -errno;
		if (nr < 0)
			continue;
		if (polled[1].revents)
			return -ECANCELED;
		if (polled[0].revents)
			return 0;
		if (!left_ms && deadline_ns != KV_NO_DEADLINE)
			return -ETIMEDOUT;
	}
}

int kv_stream_connect(struct kv_stream *stream, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	/* Where the manager's backlog is full connect() blocks, for as long as a send may. */
	struct timeval patience = {.tv_sec = 1};
	int fd, rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	do
		rc = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? -errno : 0;
	while (rc == -EINTR);
	if (rc) {
		close(fd);
		return rc == -EAGAIN ? -ETIMEDOUT : rc;
	}
	stream->fd = fd;
	stream->nr_bytes = 0;
	stream->nr_taken = 0;
	return 0;
}

static void drop_file(struct kv_stream *stream)
{
	if (stream->file >= 0)
		close(stream->file);
	stream->file = -1;
}

void kv_stream_close(struct kv_stream *stream)
{
	drop_file(stream);
	if (stream->fd >= 0)
		close(stream->fd);
	stream->fd = -1;
}

static ssize_t send_some(int fd, const char *bytes, size_t nr, const int *files, size_t nr_files)
{
	struct iovec vector = {.iov_base = (char *)bytes, .iov_len = nr};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	union control control = {};
	ssize_t sent;

	if (nr_files) {
		struct cmsghdr *header = &control.align;

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(nr_files * sizeof(int));
		memcpy(CMSG_DATA(header), files, nr_files * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(nr_files * sizeof(int));
	}
	sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent < 0 ? -errno : sent;
}

int kv_stream_send(const struct kv_stream *stream, struct json_object *object, const int *files,
		   size_t nr_files, uint64_t deadline_ns)
{
	const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN);
	size_t nr, nr_sent = 0;
	char *line;
	int rc = 0;

	if (nr_files > MAX_FILES)
		return -EINVAL;
	if (!text || asprintf(&line, "%s\n", text) < 0)
		return -ENOMEM;
	nr = strlen(line);
	if (nr > KV_LINE_MAX)
		rc = -E2BIG;
	while (!rc && nr_sent < nr) {
		/* The files go with the first byte only. */
		ssize_t sent = send_some(stream->fd, line + nr_sent, nr - nr_sent, files,
					 nr_sent ? 0 : nr_files);

		if (sent >= 0)
			nr_sent += (size_t)sent;
		else if (sent == -EAGAIN)
			rc = kv_stream_wait(stream, stream->fd, POLLOUT, deadline_ns);
		else if (sent == -EPIPE || sent == -ECONNRESET)
			rc = -ENOTCONN;
		else if (sent != -EINTR)
			rc = (int)sent;
	}
	/* Half a line cannot be taken back, and would swallow the next one. */
	if (rc && nr_sent)
		shutdown(stream->fd, SHUT_RDWR);
	free(line);
	return rc;
}

static void keep_last_file(struct kv_stream *stream, struct msghdr *message)
{
	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		size_t nr;

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		nr = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < nr; i++) {
			drop_file(stream);
			memcpy(&stream->file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
		}
	}
}

/* Adds what is there to the buffer; waits for at least one byte. */
static int fill(struct kv_stream *stream, uint64_t deadline_ns)
{
	struct iovec vector = {
		.iov_base = stream->buf + stream->nr_bytes,
		.iov_len = sizeof(stream->buf) - stream->nr_bytes,
	};
	union control control;
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t nr;
	int rc;

	if (!vector.iov_len)
		return -EPROTO;
	rc = kv_stream_wait(stream, stream->fd, POLLIN, deadline_ns);
	if (rc)
		return rc;
	nr = recvmsg(stream->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (nr < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (nr <= 0)
		return -ENOTCONN;
	keep_last_file(stream, &message);
	stream->nr_bytes += (size_t)nr;
	return 0;
}

/* The next whole line in the buffer, NULL where there is none yet. */
static const char *take_line(struct kv_stream *stream, size_t *nr)
{
	char *line = stream->buf + stream->nr_taken;
	char *end = memchr(line, '\n', stream->nr_bytes - stream->nr_taken);

	if (!end) {
		stream->nr_bytes -= stream->nr_taken;
		memmove(stream->buf, line, stream->nr_bytes);
		stream->nr_taken = 0;
		return NULL;
	}
	*nr = (size_t)(end - line);
	stream->nr_taken += *nr + 1;
	return line;
}

static struct json_object *parse(const char *line, size_t nr)
{
	struct json_tokener *tokener = json_tokener_new();
	struct json_object *object;
	bool whole;

	if (!tokener)
		return NULL;
	json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
	object = json_tokener_parse_ex(tokener, line, (int)nr);
	whole = json_tokener_get_error(tokener) == json_tokener_success &&
		json_tokener_get_parse_end(tokener) == nr;
	json_tokener_free(tokener);
	if (whole && json_object_is_type(object, json_type_object))
		return object;
	json_object_put(object);
	return NULL;
}

int kv_stream_receive(struct kv_stream *stream, uint64_t deadline_ns, struct json_object **object)
{
	const char *line;
	size_t nr;

	drop_file(stream);
	while (!(line = take_line(stream, &nr))) {
		int rc = fill(stream, deadline_ns);

		if (rc)
			return rc;
	}
	*object = parse(line, nr);
	return *object ? 0 : -EPROTO;
}

int kv_json_add(struct json_object *to, const char *name, struct json_object *value)
{
	if (to && value && !json_object_object_add(to, name, value))
		return 0;
	json_object_put(value);
	return -ENOMEM;
}

/* Bytes of the character that begins there, 0 where none does (RFC 3629, section 4). */
static size_t character_bytes(const unsigned char *at, size_t left)
{
	size_t nr = at[0] < 0x80 ? 1 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;

	if (!at[0] || nr > left || (at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < nr; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	}
	/* Longer than it needs to be, a half of a pair, or beyond the last character. */
	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
	    (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))
		return 0;
	return nr;
}

size_t kv_utf8_bytes(const char *text, size_t most)
{
	size_t nr = 0, next;

	while ((next = nr < most ? character_bytes((const unsigned char *)text + nr, most - nr)
				 : 0))
		nr += next;
	return nr;
}

struct json_object *kv_decimal(uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return json_object_new_string(text);
}

int kv_json_u64(struct json_object *from, const char *name, uint64_t *value)
{
	struct json_object *field;
	const char *text;
	char *end;

	if (!json_object_object_get_ex(from, name, &field) ||
	    !json_object_is_type(field, json_type_string))
		return -EPROTO;
	text = json_object_get_string(field);
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno || *text < '0' || *text > '9' || *end ? -EPROTO : 0;
}
