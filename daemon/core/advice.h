/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A tier that only the engine can touch (the memory of a discrete GPU): which
 * blocks should leave it, and which should come. Advice is open until the engine
 * says that it did so or will not, or until its time is over. Demotions come
 * before promotions, which are advised only where there is room.
 */
#pragma once

#include "core/object_index.h"
#include "core/score.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

namespace cxlkv {

struct AdviceOptions {
	uint64_t bytes = 0; /* of the tier */
	/* Above high, blocks are to leave until no more than low is taken. */
	uint32_t high_permil = 950, low_permil = 900;
	uint64_t ack_ns = 1'000'000'000; /* for the engine to answer */
};

struct Advice {
	uint64_t id;
	ObjectKey key;
	bool promote; /* else demote */
};

class AdviceBook {
public:
	explicit AdviceBook(const AdviceOptions &options) : options_(options) {}

	/* The block is in the tier, or it is not. ENOSPC: that are too many. */
	int report(const ObjectKey &key, uint32_t bytes, bool here, uint64_t now_ns);
	/* It was used: score 0 to 1. A block that is not in the tier may be wanted there. */
	void used(const ObjectKey &key, uint32_t bytes, float score, uint64_t now_ns);
	[[nodiscard]] bool knows(const ObjectKey &key) const { return blocks_.contains(key); }

	using CanCome = std::function<bool(const ObjectKey &)>;
	/* New advice, at most max; can_come: there is something to promote. */
	std::vector<Advice> take(size_t max, uint64_t now_ns, const CanCome &can_come);
	/* The engine did it, or will not. False: no such advice is open. */
	bool end(uint64_t id, bool done, uint64_t now_ns);
	/* Advice that nobody answered in time. */
	void expire(uint64_t now_ns);
	/* When the next open advice expires; UINT64_MAX = there is none. */
	[[nodiscard]] uint64_t next_expiry_ns() const;

	/* All but bytes and blocks, which are what is there now, are counts since the start. */
	struct Stats {
		uint64_t bytes = 0, nr_blocks = 0;
		uint64_t nr_promotes = 0, nr_demotes = 0;
		uint64_t nr_done = 0, nr_refused = 0, nr_expired = 0;
	};
	[[nodiscard]] Stats stats() const { return stats_; }
	[[nodiscard]] size_t nr_open() const { return open_.size(); }

private:
	struct Block {
		uint32_t bytes = 0;
		bool here = false, wanted = false; /* one of them, or advice is open */
		float ema = 0;
		uint64_t used_ns = 0, quiet_until_ns = 0; /* not advised about before */
		uint64_t open = 0;                        /* id of advice, 0 = none */
	};
	struct Open {
		ObjectKey key;
		bool promote;
		uint32_t bytes;
		uint64_t deadline_ns;
	};
	using Entry = std::pair<const ObjectKey, Block>;

	/* In steps, since it was used. */
	[[nodiscard]] static uint32_t age(const Block &block, uint64_t now_ns);
	[[nodiscard]] double leaves_first(const Block &block, uint64_t now_ns) const;
	[[nodiscard]] std::vector<Entry *> ranked(bool here, uint64_t now_ns);
	Advice advise(Entry &entry, bool promote, uint64_t now_ns);
	/* Open advice is over, in whatever way: false where there is none of that id. */
	bool finish(uint64_t id, bool done, uint64_t now_ns);
	void settle(const ObjectKey &key, bool here);
	void forget_if_idle(const ObjectKey &key);
	/* What is here when all that is open is done. */
	[[nodiscard]] uint64_t planned_bytes() const
	{
		return stats_.bytes + coming_bytes_ - std::min(leaving_bytes_, stats_.bytes);
	}
	[[nodiscard]] uint64_t limit(uint32_t permil) const
	{
		return options_.bytes / 1000 * permil;
	}

	const AdviceOptions options_;
	const Ema ema_{0.2};
	std::unordered_map<ObjectKey, Block, ObjectKeyHash> blocks_;
	std::deque<ObjectKey> wanted_;                  /* used, and not here, the oldest first */
	std::map<uint64_t, Open> open_;                 /* in order of their deadlines */
	uint64_t coming_bytes_ = 0, leaving_bytes_ = 0; /* of what is open */
	uint64_t next_id_ = 1;
	Stats stats_;
};

} // namespace cxlkv
