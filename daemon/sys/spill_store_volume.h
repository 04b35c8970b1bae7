/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One file of the store with its own log: all state and what changes it. The
 * public store splits requests over its volumes; a block always belongs to the
 * same one, so that no volume can hold an older record of it.
 */
#pragma once

#include "base/log.h"
#include "sys/spill_store_queue.h"
#include "sys/spill_store_recovery.h"

#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace cxlkv {

class StoreCheckpointer;
class StoreCleaner;
class StoreWiper;

/* Adjacent blocks of one arena with one size and generation. */
struct BlockRun {
	uint64_t arena = 0;
	uint32_t first = 0, nr = 0, block_bytes = 0, generation = 0, format = 0;
};

class StoreVolume {
public:
	/* Opens or makes the file and recovers. set_id 0: whatever it says. */
	static Result<std::unique_ptr<StoreVolume>> open(const StoreOptions &options,
							 const std::string &path, uint32_t file,
							 uint32_t nr_files, uint64_t set_id);
	~StoreVolume();
	StoreVolume(const StoreVolume &) = delete;
	StoreVolume &operator=(const StoreVolume &) = delete;

	/* Inner buffers of the queue that a volume needs: tombstones, checkpoint, cleaner, wiper.
	 */
	static constexpr uint32_t kInnerBuffers = 4;
	void start(IoQueue &queue, uint32_t first_inner);
	/*
	 * Where the cap was lowered: moves blocks to the front, leaves out the longest
	 * unwritten ones where not all fit, and cuts the file. Waits for all of it.
	 */
	Result<> shrink();

	/* How many of the run's first blocks one extent should hold, so that no segment ends with a
	 * gap. */
	[[nodiscard]] uint32_t fitting(const BlockRun &run) const;
	/* Results of the blocks: the errno of each, through the callback; of a good read also where
	 * it lies from data on. */
	using Done = std::function<void(uint32_t i, int error, StoredBlock stored)>;
	/* Where it is taken, done is called once a block, then finished once. Blocks lie one page
	 * into the buffer, or are put there by fill. */
	Result<> write(const BlockRun &run, uint32_t buffer, const SpillStore::Fill &fill,
		       Done done, std::function<void()> finished);
	/* Reads into data, in the buffer; returns the number of I/Os, each of which ends with
	 * finished. */
	uint32_t read(const BlockRun &run, uint32_t buffer, std::byte *data, const Done &done,
		      const std::function<void()> &finished);

	void commit(BlockKey key);
	void abandon(BlockKey key);
	void drop(BlockKey key);
	void drop_arena(uint64_t arena);
	/* This record cannot be read; one of the same block that is newer is none the worse. */
	void lose(Location location);
	[[nodiscard]] bool contains(BlockKey key) const
	{
		return static_cast<bool>(index.find(key));
	}

	/* Starts what upkeep is due: tombstones, checkpoint, cleaning, wiping. */
	void pump();
	/* A checkpoint of what is there now. */
	void request_checkpoint();
	/* Tombstones and the requested checkpoint are written. */
	[[nodiscard]] bool settled() const;
	[[nodiscard]] bool failing() const;
	void add_stats(StoreStats &total) const;

	/* State, shared with checkpointer, cleaner and wiper. */
	const StoreOptions &options;
	StoreFile file;
	disk::Superblock super{};
	SegmentTable segments;
	StoreIndex index;
	IoQueue *queue = nullptr;
	uint32_t file_index = 0;
	LogPosition position;         /* checkpoint: the newest on the device */
	std::set<uint64_t> open_seqs; /* extents that are not known to be on the device */
	uint64_t log_bytes_since_checkpoint = 0;
	/*
	 * Last extent that could not be written. The log has a gap that recovery could
	 * not tell from its end, so it stops until a checkpoint is past it. 0: none.
	 */
	uint64_t failed_seq = 0;
	StoreStats stats;

	/* Written but not committed. Not ready: the write is in flight. */
	struct Pending {
		Location location;
		bool ready = false;
	};
	std::unordered_map<BlockKey, Pending, BlockKeyHash> pending;

	/* Gives the header its place in the log and puts it, and its copy, around the blocks. */
	void seal_extent(disk::ExtentHeader &header, SegmentTable::Place place, std::byte *at);
	/* Writes sealed extents that lie side by side; handler runs after the log's own
	 * book-keeping. */
	void write_log(SegmentTable::Place place, uint32_t buffer, uint32_t bytes,
		       uint64_t first_seq, IoQueue::Handler handler);
	void complain(const char *what, int error);
	void release_held(int code);
	/*
	 * Wipe::Secure: what holds records of newly dropped blocks, older ones too, shall
	 * be emptied and wiped. Checkpoints keep that mark, and tombstones behind the last
	 * one make it again, so that a crash forgets nothing.
	 */
	void evacuate_dropped();

private:
	StoreVolume(const StoreOptions &options);
	Result<> open_file(const std::string &path, uint64_t set_id, uint32_t number,
			   uint32_t nr_files);
	Result<> recover_log(uint32_t nr_segments, uint32_t nr_there, uint64_t bytes);
	void evict_oldest(uint64_t live_bytes);
	bool evict_emptiest();
	void evict(BlockKey key);
	Result<> empty_retired();
	Result<> settle_checkpoint();
	int fill_and_check(const BlockRun &run, std::byte *data, const SpillStore::Fill &fill,
			   disk::ExtentHeader &header);
	void finish_write(const BlockRun &run, Location first, int error, const Done &done);
	void flush_tombstones();
	[[nodiscard]] bool checkpoint_fits() const;
	[[nodiscard]] bool follows(Location location, uint32_t nr, BlockKey key) const;
	void read_run(Location location, uint32_t nr, uint32_t buffer, std::byte *data, Done done,
		      std::function<void()> finished);

	/* Writes that wait for the checkpoint past a failed write. */
	struct HeldWrite {
		BlockRun run;
		uint32_t buffer;
		Done done;
		std::function<void()> finished;
	};
	std::vector<HeldWrite> held_;
	/* Abandoned records are complete on the device: dropping such a block needs a tombstone. */
	std::unordered_set<BlockKey, BlockKeyHash> abandoned_;
	std::deque<disk::Tombstone> tombstones_; /* not yet written */
	uint32_t tombstone_buffer_ = 0;
	bool tombstones_in_flight_ = false;
	bool newly_dropped_ = false; /* since evacuate_dropped() */
	std::unique_ptr<StoreCheckpointer> checkpointer_;
	std::unique_ptr<StoreCleaner> cleaner_;
	std::unique_ptr<StoreWiper> wiper_;
	LogLimit limit_;
	uint64_t cap_bytes_ = 0;    /* of the file */
	uint32_t cap_segments_ = 0; /* the log may have */
};

} // namespace cxlkv
