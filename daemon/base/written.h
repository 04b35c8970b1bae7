/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace cxlkv {

/* A figure that met a full disk is not "done": the exit status for what `program` printed to
 * stdout, 1 where that cannot be written and `exit` says that all went well. */
inline int written(const char *program, int exit)
{
	if (!fflush(stdout) && !ferror(stdout))
		return exit;
	fprintf(stderr, "%s: the output cannot be written: %s\n", program, strerror(errno));
	return exit ? exit : 1;
}

} // namespace cxlkv
