/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Kills the process that uses a store at random moments (while it recovers, writes,
 * cleans, writes a checkpoint) and compares every block with what that process
 * had noted in shared memory. CXL_KV_KILLS sets how often; `make check-crash` 1000.
 */
#include "lib/store_fixture.h"

#include "base/log.h"

#include <atomic>
#include <sys/mman.h>
#include <thread>

using namespace cxlkv;

namespace {

constexpr uint32_t kNrBlocks = 1200;
constexpr uint32_t kBytes = 16384;
constexpr uint64_t kArena = 5;

/*
 * Noted before and after each change: while the two differ, a kill may leave the
 * old state, the new one, or, as the block is still in the caller's memory then,
 * nothing. 0 = dropped or never written.
 */
struct Note {
	std::atomic<uint32_t> wanted, committed;
	/* Written whole but not wanted any more: newer than what is committed, so these may be
	 * found too. */
	static constexpr uint32_t kMaxAbandoned = 4;
	std::atomic<uint32_t> nr_abandoned;
	std::atomic<uint32_t> abandoned[kMaxAbandoned];
};

struct Notes {
	Note block[kNrBlocks];
	std::atomic<uint32_t> generation;
};

/* Puts load on the store until it is killed. */
class Worker {
public:
	Worker(SpillStore &store, Notes &notes, uint64_t seed)
	    : store_(store), notes_(notes), random_(seed)
	{
	}

	[[noreturn]] void run()
	{
		for (;;) {
			if (random_() % 8 == 0)
				drop(random_() % kNrBlocks);
			else
				write();
			pollfd waiter{store_.event_fd(), POLLIN, 0};
			poll(&waiter, 1, random_() % 4 ? 0 : 1);
			collect();
		}
	}

private:
	struct Job {
		uint32_t first, nr, generation;
	};

	void write()
	{
		Bounce buffer = store_.take_buffer();
		if (!buffer.data)
			return;
		uint32_t first = random_() % kNrBlocks;
		uint32_t nr = std::min<uint32_t>(1 + random_() % 8, kNrBlocks - first);
		for (uint32_t i = 0; i < nr; i++) {
			if (busy_[first + i]) {
				store_.give_buffer(buffer);
				return;
			}
		}
		uint32_t generation = ++notes_.generation;
		for (uint32_t i = 0; i < nr; i++)
			test::fill_block(buffer.data + size_t{i} * kBytes, kBytes, kArena,
					 first + i, generation);
		for (uint32_t i = 0; i < nr; i++)
			notes_.block[first + i].wanted = generation;
		auto queued = store_.write(kArena, first, nr, kBytes, generation, buffer, tag_);
		if (!queued) {
			store_.give_buffer(buffer);
			for (uint32_t i = 0; i < nr; i++)
				notes_.block[first + i].wanted =
					notes_.block[first + i].committed.load();
			return;
		}
		for (uint32_t i = 0; i < nr; i++)
			busy_[first + i] = true;
		jobs_[tag_++] = {first, nr, generation};
	}

	void collect()
	{
		for (StoreCompletion &one : store_.poll()) {
			store_.give_buffer(one.buffer);
			Job job = jobs_[one.tag];
			jobs_.erase(one.tag);
			for (uint32_t i = 0; i < job.nr; i++) {
				busy_[job.first + i] = false;
				/* Now and then the block was written to meanwhile: the record is
				 * not wanted. */
				Note &note = notes_.block[job.first + i];
				uint32_t nr = note.nr_abandoned;
				if (one.results[i] == 0 && nr < Note::kMaxAbandoned &&
				    random_() % 16 == 0) {
					note.abandoned[nr] = job.generation;
					note.nr_abandoned = nr + 1;
					store_.abandon({kArena, job.first + i});
					continue; /* stays in doubt until the next write */
				}
				if (one.results[i] == 0) {
					store_.commit({kArena, job.first + i});
					note.committed = job.generation;
					note.nr_abandoned = 0;
				}
			}
		}
		/* A drop holds once nothing is in flight. */
		if (!dropped_.empty() && store_.nr_in_flight() == 0) {
			for (uint32_t block : dropped_) {
				notes_.block[block].committed = 0;
				notes_.block[block].nr_abandoned = 0;
			}
			dropped_.clear();
		}
	}

	void drop(uint32_t block)
	{
		if (busy_[block])
			return;
		std::erase(dropped_, block);
		notes_.block[block].wanted = 0;
		store_.drop({kArena, block});
		dropped_.push_back(block);
		/* Wait for it, or a later write of the block would have to be told from it. */
		while (!dropped_.empty()) {
			pollfd waiter{store_.event_fd(), POLLIN, 0};
			poll(&waiter, 1, 10);
			collect();
		}
	}

	SpillStore &store_;
	Notes &notes_;
	std::mt19937_64 random_;
	bool busy_[kNrBlocks] = {};
	uint64_t tag_ = 0;
	std::map<uint64_t, Job> jobs_;
	std::vector<uint32_t> dropped_;
};

class StoreCrash : public test::StoreTest {
protected:
	void SetUp() override
	{
		StoreTest::SetUp();
		options_.size_bytes = 48u << 20;
		options_.nr_buffers = 8;
		options_.queue_depth = 8;
		void *at = mmap(nullptr, sizeof(Notes), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		ASSERT_NE(at, MAP_FAILED);
		memory_ = Mapping(at, sizeof(Notes));
		notes_ = new (at) Notes{};
	}

	void work_and_kill(uint64_t seed)
	{
		pid_t child = fork();
		if (child == 0) {
			set_log_level(Level::Error);
			auto opened = SpillStore::open(options_);
			if (!opened)
				_exit(1);
			Worker(**opened, *notes_, seed).run();
		}
		std::mt19937_64 random(seed);
		std::this_thread::sleep_for(std::chrono::microseconds(random() % 60000));
		ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the worker gave up";
		kill(child, SIGKILL);
		waitpid(child, nullptr, 0);
	}

	/* What is there now is the truth for the next round. */
	void compare()
	{
		for (uint32_t i = 0; i < kNrBlocks; i++) {
			Note &note = notes_->block[i];
			uint32_t committed = note.committed, wanted = note.wanted, found = 0;
			bool settled = wanted == committed && note.nr_abandoned == 0;
			std::vector<uint32_t> allowed = {wanted, committed};
			for (uint32_t n = 0; n < note.nr_abandoned; n++)
				allowed.push_back(note.abandoned[n]);
			int result = EILSEQ;
			for (size_t n = 0; n < allowed.size() && result == EILSEQ; n++) {
				found = allowed[n];
				result = driver_->check(kArena, i, kBytes, found);
			}
			if (result == EILSEQ) {
				nr_wrong_++;
				explain(i);
			}
			nr_from_abandoned_ += result == 0 && found != wanted && found != committed;
			if (result)
				found = 0;
			nr_lost_ += settled && committed && result != 0;
			nr_undead_ += settled && !committed && result != ENOENT;
			nr_in_doubt_ += !settled;
			/* A record that fails to verify must not come back later. */
			if (result == EBADMSG)
				store_->drop({kArena, i});
			note.committed = note.wanted = found;
			note.nr_abandoned = 0;
		}
	}

	/* Which of all generations that there have been is it? */
	void explain(uint32_t block)
	{
		Note &note = notes_->block[block];
		uint32_t found = 0;
		for (uint32_t g = 1; g <= notes_->generation && !found; g++)
			found = driver_->check(kArena, block, kBytes, g) == 0 ? g : 0;
		printf("# block %u: wanted %u, committed %u, %u abandoned, found %u of %u\n", block,
		       note.wanted.load(), note.committed.load(), note.nr_abandoned.load(), found,
		       notes_->generation.load());
	}

	Mapping memory_;
	Notes *notes_ = nullptr;
	uint64_t nr_wrong_ = 0, nr_lost_ = 0, nr_undead_ = 0, nr_in_doubt_ = 0;
	/* These would be wrong bytes if nobody had abandoned them. */
	uint64_t nr_from_abandoned_ = 0;
};

} // namespace

TEST_F(StoreCrash, KillsLoseNothingCommitted)
{
	const char *wanted = getenv("CXL_KV_KILLS");
	uint32_t nr_kills = wanted ? static_cast<uint32_t>(atoi(wanted)) : 25;

	set_log_level(Level::Error);
	for (uint32_t i = 0; i < nr_kills; i++) {
		ASSERT_NO_FATAL_FAILURE(work_and_kill(i + 1)) << "kill " << i;
		open();
		compare();
		ASSERT_EQ(nr_wrong_, 0u) << "wrong bytes after kill " << i;
		ASSERT_EQ(nr_lost_, 0u) << "committed blocks lost after kill " << i;
		ASSERT_EQ(nr_undead_, 0u) << "dropped blocks back after kill " << i;
		store_.reset();
	}
	printf("# %u kills: 0 wrong, 0 lost, 0 back from a drop; %lu blocks were in the middle of "
	       "a change, %lu of them as an abandoned write had them\n",
	       nr_kills, nr_in_doubt_, nr_from_abandoned_);
}
