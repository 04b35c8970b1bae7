/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The arenas that the daemon serves, by number. Shared by the control and the policy thread. */
#pragma once

#include "base/fd.h"
#include "sys/arena.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cxlkv {

struct ArenaEntry {
	std::shared_ptr<Arena> arena;
	std::string name; /* of the client; written by the control thread, which alone reads it */
	std::atomic<uint64_t> connection{
		0};             /* 0: its client's connection broke; it may come back */
	uint64_t module_id = 0; /* the module's number of the arena; 0 in native mode */
	Fd pidfd;               /* readable when the client is dead */
	std::vector<std::atomic<bool>> open_slots;

	/* What the BPF programs know it by. */
	[[nodiscard]] uint64_t sampling_id() const
	{
		return module_id ? module_id : arena->options.number;
	}
};

class ArenaTable {
public:
	uint32_t reserve_number()
	{
		std::lock_guard lock(mutex_);
		return next_++;
	}

	void add(std::shared_ptr<ArenaEntry> entry)
	{
		std::lock_guard lock(mutex_);
		uint32_t number = entry->arena->options.number;
		entries_[number] = std::move(entry);
	}

	std::shared_ptr<ArenaEntry> remove(uint32_t number)
	{
		std::lock_guard lock(mutex_);
		auto node = entries_.extract(number);
		return node ? std::move(node.mapped()) : nullptr;
	}

	[[nodiscard]] std::shared_ptr<ArenaEntry> find(uint32_t number) const
	{
		std::lock_guard lock(mutex_);
		auto it = entries_.find(number);
		return it == entries_.end() ? nullptr : it->second;
	}

	[[nodiscard]] std::vector<std::shared_ptr<ArenaEntry>> all() const
	{
		std::lock_guard lock(mutex_);
		std::vector<std::shared_ptr<ArenaEntry>> entries;
		for (const auto &[number, entry] : entries_)
			entries.push_back(entry);
		return entries;
	}

private:
	mutable std::mutex mutex_;
	std::map<uint32_t, std::shared_ptr<ArenaEntry>> entries_;
	uint32_t next_ = 1;
};

} // namespace cxlkv
