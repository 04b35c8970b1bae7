/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What tiering costs the machine: processor time, system calls, and pages that moved. */
#pragma once

#include "base/result.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace cxlkv::peers {

/* /proc/vmstat, of which names that this kernel does not have are 0. */
std::map<std::string, uint64_t> vmstat();

/* Processor time so far of all tasks that live, of the kernel too, but for the one that calls. */
double others_seconds();

/* System calls of all threads but the one that calls, from now on; none without tracefs. */
class Syscalls {
public:
	Syscalls();
	~Syscalls();
	[[nodiscard]] std::optional<uint64_t> count() const;

private:
	bool counts_ = false;
	std::string trigger_;
};

} // namespace cxlkv::peers
