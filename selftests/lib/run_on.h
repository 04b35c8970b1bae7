/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Threads on a CPU of their own. */
#pragma once

#include <sched.h>

namespace cxlkv::test {

/* The calling thread, and what it starts from now on. False where it may not use that CPU. */
inline bool run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0;
}

} // namespace cxlkv::test
