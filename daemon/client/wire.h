/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One stream to the manager: JSON objects, one a line, and files by SCM_RIGHTS.
 * Knows nothing of what the lines mean. One thread may receive while another
 * sends; two may not do the same.
 */
#ifndef CLIENT_WIRE_H
#define CLIENT_WIRE_H

#include <json-c/json.h>
#include <stddef.h>
#include <stdint.h>

#define KV_LINE_MAX 65536
#define KV_NO_DEADLINE UINT64_MAX
#define KV_NS_PER_MS 1000000ull

struct kv_stream {
	int fd;          /* -1 = not connected */
	int wake_fd;     /* readable: give up waiting with -ECANCELED */
	int file;        /* the last file received, -1 = none */
	size_t nr_bytes; /* in buf */
	size_t nr_taken; /* of these, handed out already */
	char buf[KV_LINE_MAX];
};

/* CLOCK_MONOTONIC; every deadline is a moment of it. */
uint64_t kv_now_ns(void);

/* Waits for poll events on fd (-1: only for the wake-up): 0, -ETIMEDOUT or -ECANCELED. */
int kv_stream_wait(const struct kv_stream *stream, int fd, short events, uint64_t deadline_ns);

int kv_stream_connect(struct kv_stream *stream, const char *path);
void kv_stream_close(struct kv_stream *stream);

/*
 * Sends one object and the files with its first byte. -ENOTCONN: the peer is
 * gone. After any other error nothing was sent, or the stream is shut down.
 */
int kv_stream_send(const struct kv_stream *stream, struct json_object *object, const int *files,
		   size_t nr_files, uint64_t deadline_ns);

/*
 * Receives one object, which the caller puts. -ENOTCONN the peer hung up,
 * -EPROTO what came is not an object on a line of at most KV_LINE_MAX.
 */
int kv_stream_receive(struct kv_stream *stream, uint64_t deadline_ns, struct json_object **object);

/* Adds a field; takes the value over, which may be NULL. 0 or -ENOMEM. */
int kv_json_add(struct json_object *to, const char *name, struct json_object *value);

/* Of the text's first bytes, at most most and none from its end on, how many are whole characters
 * of UTF-8. The manager takes no line with others. */
size_t kv_utf8_bytes(const char *text, size_t most);

/* 64-bit values are decimal strings: JSON readers may keep numbers as doubles. */
struct json_object *kv_decimal(uint64_t value);
/* 0, or -EPROTO where the field is not such a string. */
int kv_json_u64(struct json_object *from, const char *name, uint64_t *value);

#endif
