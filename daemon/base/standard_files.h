/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace cxlkv {

/* What opens next would take the number of a standard file that the caller closed, and get what is
 * printed: the daemon's socket, or the spill file. Each way round, so that using them stays the
 * error that it was. */
inline void keep_standard_files()
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

} // namespace cxlkv
