/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A spill store in a scratch file for tests, a driver that makes its calls
 * synchronous, and a BlockIo that fails on demand.
 */
#pragma once

#include "sys/spill_store.h"
#include "sys/uring.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <poll.h>
#include <random>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cxlkv::test {

/* Passes I/O on, except what a test wants to fail. */
class FaultyIo final : public BlockIo {
public:
	/* nullopt lets the request pass, which the test may have changed; a value is its result,
	 * nothing is done. */
	using Fault = std::function<std::optional<int>(IoRequest &)>;

	explicit FaultyIo(std::unique_ptr<BlockIo> below) : below_(std::move(below)) {}
	bool submit(const IoRequest &request) override
	{
		IoRequest changed = request;
		auto result = fault ? fault(changed) : std::nullopt;
		if (!result)
			return below_->submit(changed);
		faked_.push_back({request.token, *result});
		eventfd_write(event_fd(), 1);
		return true;
	}
	void reap(std::vector<IoDone> &done) override
	{
		done.insert(done.end(), faked_.begin(), faked_.end());
		faked_.clear();
		below_->reap(done);
	}
	[[nodiscard]] int event_fd() const override { return below_->event_fd(); }

	Fault fault;

private:
	std::unique_ptr<BlockIo> below_;
	std::vector<IoDone> faked_;
};

/* Contents that follow from the name, so that any block can be checked anywhere. */
inline void fill_block(std::byte *at, uint32_t bytes, uint64_t arena, uint32_t block,
		       uint32_t generation)
{
	std::mt19937_64 random(arena * 1000003 + block * 4099ull + generation);
	for (uint32_t i = 0; i < bytes; i += 8) {
		uint64_t word = random();
		memcpy(at + i, &word, 8);
	}
}

/* The store's calls made synchronous. */
class StoreDriver {
public:
	explicit StoreDriver(SpillStore &store) : store_(store) {}

	/* Results of the blocks, or one errno of a refused call. */
	std::vector<int> write(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
			       uint32_t generation)
	{
		Bounce buffer = store_.take_buffer();
		for (uint32_t i = 0; i < nr; i++)
			fill_block(buffer.data + size_t{i} * block_bytes, block_bytes, arena,
				   first + i, generation);
		auto queued = store_.write(arena, first, nr, block_bytes, generation, buffer, 1);
		return queued ? wait(buffer) : refused(buffer, queued.error());
	}
	/* The same, but the store fetches the bytes; from block bad on it gets EIO. */
	std::vector<int> write_filling(uint64_t arena, uint32_t first, uint32_t nr,
				       uint32_t block_bytes, uint32_t generation,
				       uint32_t bad = UINT32_MAX)
	{
		Bounce buffer = store_.take_buffer();
		auto fill = [&](uint32_t i, uint32_t n, std::byte *to) {
			for (uint32_t end = i + n; i < end; i++, to += block_bytes) {
				if (i >= bad)
					return EIO;
				fill_block(to, block_bytes, arena, first + i, generation);
			}
			return 0;
		};
		auto queued =
			store_.write(arena, first, nr, block_bytes, generation, buffer, 1, 0, fill);
		return queued ? wait(buffer) : refused(buffer, queued.error());
	}
	std::vector<int> read(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
			      std::vector<std::byte> &out)
	{
		Bounce buffer = store_.take_buffer();
		auto queued = store_.read(arena, first, nr, block_bytes, buffer, 2);
		if (!queued)
			return refused(buffer, queued.error());
		auto results = wait(buffer);
		out.assign(buffer.data, buffer.data + size_t{nr} * block_bytes);
		return results;
	}
	/* 0 with the right contents, the read's error, or EILSEQ: wrong bytes, which must never be.
	 */
	int check(uint64_t arena, uint32_t block, uint32_t block_bytes, uint32_t generation)
	{
		std::vector<std::byte> got, want(block_bytes);
		int result = read(arena, block, 1, block_bytes, got)[0];
		if (result)
			return result;
		fill_block(want.data(), block_bytes, arena, block, generation);
		return got == want ? 0 : EILSEQ;
	}
	/* Writes and commits; the first error. */
	int put(uint64_t arena, uint32_t first, uint32_t nr, uint32_t block_bytes,
		uint32_t generation)
	{
		for (int result : write(arena, first, nr, block_bytes, generation)) {
			if (result)
				return result;
		}
		for (uint32_t i = 0; i < nr; i++)
			store_.commit({arena, first + i});
		return 0;
	}

	/* Lets the store do its upkeep until it is idle. */
	void settle_once()
	{
		pollfd waiter{store_.event_fd(), POLLIN, 0};
		poll(&waiter, 1, 20);
		pass();
	}
	void settle()
	{
		for (int quiet = 0; quiet < 3; quiet++) {
			pollfd waiter{store_.event_fd(), POLLIN, 0};
			if (poll(&waiter, 1, 20) > 0)
				quiet = -1;
			pass();
		}
	}

private:
	void pass()
	{
		for (StoreCompletion &one : store_.poll())
			store_.give_buffer(one.buffer);
	}
	std::vector<int> refused(Bounce buffer, const Error &error)
	{
		store_.give_buffer(buffer);
		return {error.code};
	}
	std::vector<int> wait(Bounce buffer)
	{
		for (int tries = 0; tries < 100; tries++) {
			pollfd waiter{store_.event_fd(), POLLIN, 0};
			poll(&waiter, 1, 100);
			for (StoreCompletion &one : store_.poll()) {
				store_.give_buffer(one.buffer);
				if (one.buffer.index == buffer.index)
					return one.results;
			}
		}
		return {ETIMEDOUT};
	}

	SpillStore &store_;
};

class StoreTest : public testing::Test {
protected:
	static constexpr uint32_t kBytes = 16384; /* of a block */

	void SetUp() override
	{
		const char *base = getenv("TMPDIR");
		std::string name = std::string(base ? base : "/var/tmp") + "/cxl-kv-store-XXXXXX";
		ASSERT_NE(mkdtemp(name.data()), nullptr);
		directory_ = name;
		options_.path = name + "/spill";
		options_.size_bytes = 16u << 20;
		options_.extent_bytes = 128 << 10;
		options_.nr_buffers = 4;
		options_.queue_depth = 4;
	}
	void TearDown() override
	{
		if (store_)
			io_->fault = nullptr;
		driver_.reset();
		store_.reset();
		std::filesystem::remove_all(directory_);
	}
	void open()
	{
		driver_.reset();
		store_.reset();
		auto opened = SpillStore::open(options_, [this](std::unique_ptr<BlockIo> below) {
			auto faulty = std::make_unique<FaultyIo>(std::move(below));
			io_ = faulty.get();
			return faulty;
		});
		if (!opened)
			throw std::runtime_error("open: " + opened.error().what);
		store_ = std::move(*opened);
		driver_.emplace(*store_);
	}
	/* Does the work in a child that dies by SIGKILL right after it. */
	bool killed_after(const std::function<void()> &work)
	{
		pid_t child = fork();
		if (child == 0) {
			work();
			raise(SIGKILL);
		}
		int status = 0;
		waitpid(child, &status, 0);
		return WIFSIGNALED(status);
	}
	/* What the next open says. */
	Error open_error()
	{
		driver_.reset();
		store_.reset();
		auto opened = SpillStore::open(options_);
		return opened ? Error{} : opened.error();
	}

	std::string directory_;
	StoreOptions options_;
	std::unique_ptr<SpillStore> store_;
	FaultyIo *io_ = nullptr;
	std::optional<StoreDriver> driver_;
};

} // namespace cxlkv::test
