/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The manager's side of /dev/cxl_kv: the module keeps the clients' files and
 * hands them to us, also after we were killed and started again.
 */
#pragma once

#include "base/fd.h"
#include "base/result.h"
#include "sys/arena.h"

#include <memory>
#include <optional>

namespace cxlkv {

class KmodDevice {
public:
	struct Event {
		bool added;      /* else removed */
		uint64_t module_id; /* the module's number of the arena */
	};
	struct ModuleArena {
		Geometry geometry;
		ArenaFiles files; /* without a ring */
		pid_t pid = 0;
		uint64_t client_base = 0;
		uint64_t key = 0; /* what set_key() stored, 0 at first */
		uint32_t ring_entries = 0;
	};

	/* ENOENT: the module is not loaded. EBUSY: another manager is attached. EPERM: CAP_SYS_NICE is missing. */
	static Result<std::unique_ptr<KmodDevice>> attach();

	/* Readable (poll) while events wait. */
	[[nodiscard]] int fd() const { return device_.get(); }
	std::optional<Event> next_event();
	/* The arena's files and shape. ENOENT: its client is gone. */
	Result<ModuleArena> get(uint64_t module_id);
	Result<> set_key(uint64_t module_id, uint64_t key);

private:
	explicit KmodDevice(Fd device) : device_(std::move(device)) {}

	Fd device_;
};

} // namespace cxlkv
