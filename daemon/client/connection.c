// SPDX-License-Identifier: LGPL-2.1-or-later
/* Opening and closing a connection, and what its options mean. */
#include "client/objects.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_SOCKET "/run/cxl-kv/control.sock"
#define DEFAULT_LOSS_DEADLINE_MS 30000
#define MAX_NAME 64

const char *cxl_kv_version(void)
{
	return CXL_KV_VERSION;
}

void kv_log(const struct cxl_kv *kv, const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	/* It may quote the manager: nothing that a terminal would act on. */
	for (char *at = message; *at; at++) {
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = '?';
	}
	if (kv->log)
		kv->log(kv->log_data, message);
	else
		fprintf(stderr, "libcxl_kv: %s\n", message);
}

/* Options of any size that a caller was built with: what we do not know has to be zero. */
static int read_options(const struct cxl_kv_options *from, struct cxl_kv_options *options)
{
	const char *bytes = (const char *)from;

	memset(options, 0, sizeof(*options));
	if (!from)
		return 0;
	if (from->size < offsetof(struct cxl_kv_options, log))
		return -EINVAL;
	for (size_t i = sizeof(*options); i < from->size; i++) {
		if (bytes[i])
			return -E2BIG;
	}
	memcpy(options, from, from->size < sizeof(*options) ? from->size : sizeof(*options));
	if (options->on_manager_loss > CXL_KV_LOSS_FAIL || options->elem_type > CXL_KV_ELEM_BF16 ||
	    options->cold_format > CXL_KV_COLD_INT4)
		return -EINVAL;
	/* A lossy format of elements nobody named. */
	return options->cold_format > CXL_KV_COLD_RAW && !options->elem_type ? -EINVAL : 0;
}

/* For people only: what is not UTF-8 in it, or was cut to a part of a character, is a question
 * mark. */
static char *tidy_name(const char *name)
{
	char *tidy = strndup(name, MAX_NAME);

	for (char *at = tidy; at && *(at += kv_utf8_bytes(at, MAX_NAME));)
		*at = '?';
	return tidy;
}

static int apply_options(struct cxl_kv *kv, const struct cxl_kv_options *options)
{
	const char *path = options->socket_path ?: secure_getenv("CXL_KV_SOCKET") ?: DEFAULT_SOCKET;
	const char *name = options->name ?: program_invocation_short_name;

	kv->on_loss = options->on_manager_loss;
	kv->loss_deadline_ms = options->loss_deadline_ms ?: DEFAULT_LOSS_DEADLINE_MS;
	kv->elem_type = options->elem_type;
	kv->cold_format = options->cold_format;
	kv->log = options->log;
	kv->log_data = options->log_data;
	kv->socket_path = strdup(path);
	kv->name = tidy_name(name);
	if (options->tenant) {
		if (options->tenant[kv_utf8_bytes(options->tenant, SIZE_MAX)])
			return -EINVAL;
		kv->tenant = strdup(options->tenant);
		if (!kv->tenant)
			return -ENOMEM;
	}
	return kv->socket_path && kv->name ? 0 : -ENOMEM;
}

/* One page that a forked child sees as zeros: the check for it costs a load, not a getpid(). */
static int mark_owner(struct cxl_kv *kv)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	char *page =
		mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, page_bytes, MADV_WIPEONFORK)) {
		int rc = -errno;

		munmap(page, page_bytes);
		return rc;
	}
	*page = 1;
	kv->is_owner = page;
	return 0;
}

static void destroy(struct cxl_kv *kv)
{
	kv_stream_close(&kv->stream);
	if (kv->stream.wake_fd >= 0)
		close(kv->stream.wake_fd);
	if (kv->userfault_device >= 0)
		close(kv->userfault_device);
	if (kv->module >= 0)
		close(kv->module);
	if (kv->is_owner)
		munmap((void *)kv->is_owner, (size_t)sysconf(_SC_PAGESIZE));
	free(kv->tenant);
	free(kv->name);
	free(kv->socket_path);
	free(kv);
}

static struct cxl_kv *new_connection(void)
{
	struct cxl_kv *kv = calloc(1, sizeof(*kv));

	if (!kv)
		return NULL;
	kv->stream.fd = -1;
	kv->stream.file = -1;
	kv->stream.wake_fd = -1;
	kv->userfault_device = -1;
	kv->module = kv_module_open();
	kv->next_id = 1;
	pthread_mutex_init(&kv->arenas_lock, NULL);
	pthread_mutex_init(&kv->objects_lock, NULL);
	pthread_mutex_init(&kv->send_lock, NULL);
	pthread_mutex_init(&kv->lock, NULL);
	return kv;
}

/* With what to do about it, where the error says that. */
static void log_failure(const struct cxl_kv *kv, int rc)
{
	bool absent = !kv->refused && (rc == -ENOENT || rc == -ECONNREFUSED);
	const char *hint = "";

	if (absent)
		hint = ". Is cxl-kvd running?";
	else if (rc == -EACCES && kv->tenant)
		hint = ". Is the tenant in its configuration, and this user's to be?";
	else if (rc == -EACCES)
		hint = ". Be root or in the group cxl-kv";
	kv_log(kv, "%s %s: %s%s", absent ? "no manager at" : "cannot use the manager at",
	       kv->socket_path, strerror(-rc), hint);
}

static int start(struct cxl_kv *kv, const struct cxl_kv_options *options)
{
	int rc = apply_options(kv, options) ?: mark_owner(kv);

	if (rc)
		return rc;
	kv->stream.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (kv->stream.wake_fd < 0)
		return -errno;
	rc = kv_attach(kv);
	if (rc) {
		log_failure(kv, rc);
		return rc;
	}
	return kv_helper_start(kv);
}

int cxl_kv_open(const struct cxl_kv_options *from, struct cxl_kv **out)
{
	struct cxl_kv_options options;
	struct cxl_kv *kv;
	int rc;

	if (!out)
		return -EINVAL;
	rc = read_options(from, &options);
	if (rc)
		return rc;
	kv = new_connection();
	if (!kv)
		return -ENOMEM;
	rc = start(kv, &options);
	if (rc) {
		destroy(kv);
		return rc;
	}
	*out = kv;
	return 0;
}

void cxl_kv_close(struct cxl_kv *kv)
{
	if (!kv)
		return;
	while (kv->arenas)
		cxl_kv_arena_destroy(kv->arenas);
	kv_objects_stop(kv);
	/* The helper is not in a forked child, and its locks may be held for ever there. */
	if (!kv_forked(kv))
		kv_helper_stop(kv);
	kv_objects_free(kv);
	destroy(kv);
}

int cxl_kv_connected(const struct cxl_kv *kv)
{
	/* The lock is no part of what the caller sees as constant. */
	pthread_mutex_t *lock = (pthread_mutex_t *)&kv->lock;
	int connected;

	if (kv_forked(kv))
		return 0;
	pthread_mutex_lock(lock);
	connected = kv->connected;
	pthread_mutex_unlock(lock);
	return connected;
}
