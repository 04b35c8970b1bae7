/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/spill_store_recovery.h"

#include "sys/spill_store_scan.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace cxlkv {

namespace {

/* Enters a record unless one as new is known. Of a moved extent both are: the old place is the safe
 * one. */
void enter(Location location, SegmentTable &table, StoreIndex &index)
{
	BlockKey key = table.key(location);
	Location old = index.find(key);

	if (old && table.extent(old).version >= table.extent(location).version) {
		table.set_dead(location);
		return;
	}
	table.set_live(location);
	index.set(key, location);
	if (old)
		table.set_dead(old);
}

/* The checkpoint's live blocks. A block written but not yet committed then is there twice; the
 * newer wins. */
void enter_checkpoint(SegmentTable &table, StoreIndex &index)
{
	for (uint32_t number = 0; number < table.size(); number++) {
		table.pin(number); /* no segment is freed while it is walked */
		for (uint32_t slot = 0; slot < table.at(number).blocks.size(); slot++) {
			if (table.at(number).blocks[slot].live)
				enter({number, slot}, table, index);
		}
		table.unpin(number);
	}
}

/* The log behind the checkpoint. */
class Replay {
public:
	Replay(const StoreFile &file, const disk::Superblock &super, Recovered &out)
	    : file_(file), super_(super), out_(out)
	{
	}

	Result<> run()
	{
		start_ = out_.position;
		if (auto found = collect(); !found)
			return found;
		if (auto whole = check(); !whole)
			return whole;
		for (const disk::ExtentHeader &header : extents_)
			apply(header);
		for (const disk::Tombstone &tombstone : out_.tombstones)
			apply(tombstone);
		out_.nr_replayed = extents_.size();
		return ok();
	}

private:
	/*
	 * Extents newer than the checkpoint: in the segments that were open, then in
	 * the free ones in their order. The end has come when so much of the log in a row
	 * has none that no write in flight can lie behind it.
	 */
	Result<> collect()
	{
		uint64_t silent_bytes = 0;
		auto free = out_.table.list_free();
		uint32_t nr_opened = 0;

		for (uint32_t segment : out_.table.open()) {
			if (segment == Location::kNone)
				continue;
			auto any = collect_from(segment, out_.table.at(segment).used_bytes);
			if (!any)
				return any.error();
		}
		for (uint32_t i = 0; i < free.size() && silent_bytes <= start_.in_flight_bytes;
		     i++) {
			auto any = collect_from(free[i], 0);
			if (!any)
				return any.error();
			silent_bytes = *any ? 0 : silent_bytes + super_.segment_bytes;
			if (*any)
				nr_opened = i + 1;
		}
		std::sort(extents_.begin(), extents_.end(),
			  [](auto &a, auto &b) { return a.seq < b.seq; });
		reopen(free, nr_opened);
		return ok();
	}

	Result<bool> collect_from(uint32_t segment, uint32_t from)
	{
		auto found = scan_segment(file_, super_, segment, from);
		if (!found)
			return found.error();
		bool any = false;
		for (auto &[offset, header] : *found) {
			if (header.seq <= start_.seq)
				continue;
			extents_.push_back(header);
			any = true;
		}
		return any;
	}

	/*
	 * Makes the segments that the log had got to used ones. Which of them the log
	 * grew in last is not known, unless it is still where the checkpoint says.
	 */
	void reopen(const std::vector<uint32_t> &free, uint32_t nr_opened)
	{
		for (const disk::ExtentHeader &header : extents_) {
			Segment &segment = out_.table.at(header.segment);
			segment.life = std::max(segment.life, header.life);
			segment.unwiped = false;
			segment.used_bytes =
				std::max(segment.used_bytes, header.offset + header.total_bytes());
		}
		out_.table.restore_free(std::deque<uint32_t>(free.begin() + nr_opened, free.end()));
		if (nr_opened)
			out_.table.restore_open(kNoneOpen);
	}

	/* Is anything missing that was on the device once? */
	Result<> check()
	{
		uint64_t completed = start_.seq, expected = start_.seq + 1;
		std::optional<uint64_t> missing;

		for (const disk::ExtentHeader &header : extents_) {
			if (header.checkpoint > start_.checkpoint)
				return error(EBADMSG, "a newer checkpoint is missing");
			completed = std::max(completed, header.completed);
			if (header.seq > expected && !missing)
				missing = expected;
			expected = header.seq + 1;
		}
		if (missing && *missing <= completed)
			return error(EBADMSG,
				     fmt::format("extent {} of the log is missing", *missing));
		return ok();
	}

	void apply(const disk::ExtentHeader &header)
	{
		out_.position.seq = std::max(out_.position.seq, header.seq);
		out_.position.version = std::max(out_.position.version, header.version);
		if (header.kind == disk::Kind::Tombstones) {
			out_.tombstones.insert(out_.tombstones.end(), header.tombstone,
					       header.tombstone + header.nr);
			return;
		}
		uint32_t slot = out_.table.add(header.segment, entry_of(header), header.block_crc);
		for (uint32_t i = 0; i < header.nr; i++)
			enter({header.segment, slot + i}, out_.table, out_.index);
	}

	void apply(const disk::Tombstone &tombstone)
	{
		out_.position.version = std::max(out_.position.version, tombstone.version);
		for (BlockKey key :
		     out_.index.keys(tombstone.arena, tombstone.first, tombstone.nr)) {
			Location location = out_.index.find(key);
			if (out_.table.extent(location).version > tombstone.version)
				continue;
			out_.index.erase(key);
			out_.table.set_dead(location);
		}
	}

	const StoreFile &file_;
	const disk::Superblock &super_;
	Recovered &out_;
	LogPosition start_;
	std::vector<disk::ExtentHeader> extents_;
};

} // namespace

Result<Recovered> recover(const StoreFile &file, const disk::Superblock &super,
			  uint32_t nr_segments, uint32_t nr_there)
{
	auto checkpoint = load_checkpoint(file, super, nr_segments, nr_there);

	if (!checkpoint)
		return checkpoint.error();
	Recovered out;
	out.table = std::move(checkpoint->table);
	out.position = checkpoint->position;
	out.nr_cut = checkpoint->nr_cut;
	enter_checkpoint(out.table, out.index);
	if (auto done = Replay(file, super, out).run(); !done)
		return done.error();
	out.table.settle();
	return out;
}

} // namespace cxlkv
