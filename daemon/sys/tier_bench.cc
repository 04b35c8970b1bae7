/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "sys/tier_bench.h"

#include "base/fd.h"
#include "base/histogram.h"
#include "sys/pointer_chase.h"
#include "sys/uring.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <fmt/format.h>
#include <functional>
#include <numa.h>
#include <numaif.h>
#include <poll.h>
#include <sched.h>
#include <thread>

namespace cxlkv {

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin)
{
	return std::chrono::duration<double>(Clock::now() - begin).count();
}

/* ---- memory ---- */

size_t nr_cpus()
{
	cpu_set_t set;
	CPU_ZERO(&set);
	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return std::clamp<size_t>(static_cast<size_t>(CPU_COUNT(&set)), 1, 64);
}

/* The node of every page that is there, as move_pages(2) tells; nodes may be null. */
long pages_call(std::byte *at, uint64_t bytes, const int *to, std::vector<int> &status)
{
	const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
	const size_t nr = bytes / page;
	std::vector<void *> pages(nr);
	std::vector<int> nodes(to ? nr : 0, to ? *to : 0);

	for (size_t i = 0; i < nr; i++)
		pages[i] = at + i * page;
	status.assign(nr, -EBUSY);
	return move_pages(0, nr, pages.data(), to ? nodes.data() : nullptr, status.data(),
			  MPOL_MF_MOVE);
}

Result<Mapping> buffer_on(int node, uint64_t bytes, bool huge)
{
	void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return sys_error("memory to measure with");
	Mapping mapping(at, bytes);
	bitmask *mask = numa_allocate_nodemask();
	numa_bitmask_setbit(mask, static_cast<unsigned>(node));
	long bound = mbind(at, bytes, MPOL_PREFERRED, mask->maskp, mask->size + 1, 0);
	numa_bitmask_free(mask);
	if (bound && errno != ENOSYS) /* a kernel without NUMA has one node */
		return sys_error(fmt::format("memory of node {}", node));
	madvise(at, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	std::fill_n(mapping.data(), bytes, std::byte{1});

	std::vector<int> status;
	if (!bound && !pages_call(mapping.data(), bytes, nullptr, status) &&
	    std::ranges::any_of(status, [&](int got) { return got != node; }))
		return error(ENOMEM, fmt::format("node {} has no room for {} MiB to measure with",
						 node, bytes >> 20));
	return mapping;
}

/* Runs pass(part, bytes) on one part for each CPU again and again; bytes a second of all. */
double bandwidth(std::byte *at, uint64_t bytes, double seconds,
		 const std::function<void(std::byte *, size_t)> &pass)
{
	const size_t nr = nr_cpus(), part = bytes / nr / kLine * kLine;
	std::vector<std::thread> threads;
	std::vector<double> rates(nr);

	for (size_t i = 0; i < nr; i++)
		threads.emplace_back([&, i] {
			const auto begin = Clock::now();
			uint64_t done = 0;
			do {
				pass(at + i * part, part);
				done += part;
			} while (since(begin) < seconds);
			rates[i] = static_cast<double>(done) / since(begin);
		});
	for (std::thread &thread : threads)
		thread.join();
	double sum = 0;
	for (double rate : rates)
		sum += rate;
	return sum;
}

void read_pass(std::byte *at, size_t bytes)
{
	const auto *words = reinterpret_cast<const uint64_t *>(at);
	uint64_t sum[8] = {};

	for (size_t i = 0; i + 8 <= bytes / 8; i += 8)
		for (size_t lane = 0; lane < 8; lane++)
			sum[lane] ^= words[i + lane];
	for (uint64_t lane : sum)
		asm volatile("" : : "r"(lane));
}

void write_pass(std::byte *at, size_t bytes)
{
	std::fill_n(at, bytes, std::byte{2});
	asm volatile("" : : "r"(at) : "memory");
}

void copy_pass(std::byte *at, size_t bytes)
{
	std::copy_n(at, bytes / 2, at + bytes / 2);
	asm volatile("" : : "r"(at) : "memory");
}

double chase_ns(std::byte *at, uint64_t bytes, double seconds)
{
	link_lines(at, bytes);

	const auto begin = Clock::now();
	uint64_t loads = 0;
	uint32_t line = 0;
	do {
		line = follow_lines(at, line, 4096);
		loads += 4096;
	} while (since(begin) < seconds);
	return since(begin) * 1e9 / static_cast<double>(loads);
}

/* ---- drive ---- */

constexpr uint32_t kExtent = 1u << 20, kDepth = 16;

/* The file and its buffers, and one sequential pass after another over it. */
class DriveRun {
public:
	static Result<std::unique_ptr<DriveRun>> create(const std::string &folder,
							uint64_t file_bytes)
	{
		auto run = std::unique_ptr<DriveRun>(new DriveRun);
		run->file_bytes_ = file_bytes / kExtent * kExtent;
		run->file_ =
			Fd(open(folder.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
		if (!run->file_)
			return sys_error(folder + ": a file to measure with");
		void *at = mmap(nullptr, size_t{kExtent} * kDepth, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (at == MAP_FAILED)
			return sys_error("buffers to measure with");
		run->buffers_ = Mapping(at, size_t{kExtent} * kDepth);
		/* No drive compresses this away. */
		std::mt19937_64 random(1);
		auto *words = reinterpret_cast<uint64_t *>(run->buffers_.data());
		std::generate_n(words, run->buffers_.size() / 8, std::ref(random));
		const int files[] = {run->file_.get()};
		const iovec buffers[] = {{at, run->buffers_.size()}};
		auto io = UringIo::create(kDepth, files, buffers);
		if (!io)
			return io.error();
		run->io_ = std::move(*io);
		return run;
	}

	/* Bytes a second; a write ends with the flush that makes it last. */
	Result<double> pass(IoRequest::Op op, double seconds)
	{
		const auto begin = Clock::now();
		uint64_t next = 0, done = 0;
		unsigned in_flight = 0;
		std::vector<IoDone> ended;

		for (unsigned i = 0; i < kDepth; i++)
			in_flight += give(op, next++, i);
		while (in_flight) {
			if (auto reaped = reap(ended); !reaped)
				return reaped.error();
			for (const IoDone &io : ended) {
				in_flight--;
				if (io.result != static_cast<int>(kExtent))
					return failed(op, io.result);
				done += kExtent;
				/* The first write pass fills the file, for reads to find. */
				bool whole =
					op == IoRequest::Op::Read || next * kExtent >= file_bytes_;
				if (!whole || since(begin) < seconds)
					in_flight +=
						give(op, next++, static_cast<unsigned>(io.token));
			}
		}
		if (op == IoRequest::Op::Write && fdatasync(file_.get()))
			return sys_error("flush of the drive");
		return static_cast<double>(done) / since(begin);
	}

	Result<> random_blocks(uint32_t bytes, double seconds, Histogram &times)
	{
		std::minstd_rand random(1);
		const auto begin = Clock::now();
		std::vector<IoDone> ended;

		do {
			IoRequest request{};
			request.data = buffers_.data();
			request.bytes = bytes;
			request.offset = random() % (file_bytes_ / bytes) * bytes;
			const auto at = Clock::now();
			io_->submit(request);
			if (auto reaped = reap(ended); !reaped)
				return reaped.error();
			if (ended[0].result != static_cast<int>(bytes))
				return failed(IoRequest::Op::Read, ended[0].result);
			times.add(static_cast<uint64_t>(since(at) * 1e9));
		} while (since(begin) < seconds);
		return ok();
	}

private:
	DriveRun() = default;

	unsigned give(IoRequest::Op op, uint64_t extent, unsigned buffer)
	{
		IoRequest request{};
		request.op = op;
		request.data = buffers_.data() + size_t{buffer} * kExtent;
		request.bytes = kExtent;
		request.offset = extent * kExtent % file_bytes_;
		request.token = buffer;
		return io_->submit(request);
	}

	/* At least one completion. A drive that is silent for half a minute is broken. */
	Result<> reap(std::vector<IoDone> &ended)
	{
		ended.clear();
		for (;;) {
			io_->reap(ended);
			if (!ended.empty())
				return ok();
			pollfd wait{io_->event_fd(), POLLIN, 0};
			if (poll(&wait, 1, 30000) == 0)
				return error(ETIMEDOUT, "the drive has not answered for 30 s");
		}
	}

	static Error failed(IoRequest::Op op, int result)
	{
		errno = result < 0 ? -result : EIO;
		return sys_error(op == IoRequest::Op::Read ? "read from the drive"
							   : "write to the drive");
	}

	uint64_t file_bytes_ = 0;
	Fd file_;
	Mapping buffers_;
	std::unique_ptr<BlockIo> io_; /* goes first: it knows the buffers */
};

} // namespace

Result<NodeFigures> measure_node(int node, uint64_t bytes, double seconds)
{
	auto buffer = buffer_on(node, bytes, true);
	if (!buffer)
		return buffer.error();
	std::byte *at = buffer->data();
	NodeFigures figures;
	figures.read_MBps = bandwidth(at, bytes, seconds, read_pass) / 1e6;
	figures.write_MBps = bandwidth(at, bytes, seconds, write_pass) / 1e6;
	figures.copy_MBps = bandwidth(at, bytes, seconds, copy_pass) / 2 / 1e6;
	figures.read_ns = chase_ns(at, bytes, seconds);
	return figures;
}

Result<double> measure_move(int from, int to, uint64_t bytes, double seconds)
{
	auto buffer = buffer_on(from, bytes, false);
	if (!buffer)
		return buffer.error();
	std::vector<int> status;
	double spent = 0;
	uint64_t moved = 0;
	do {
		const auto begin = Clock::now();
		if (pages_call(buffer->data(), bytes, &to, status) < 0)
			return sys_error(fmt::format("move from node {} to {}", from, to));
		spent += since(begin);
		moved += static_cast<uint64_t>(std::ranges::count(status, to)) *
			 static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
		if (pages_call(buffer->data(), bytes, &from, status) < 0)
			return sys_error(fmt::format("move from node {} to {}", to, from));
	} while (spent < seconds && moved);
	if (!moved)
		return error(ENOMEM,
			     fmt::format("no page of node {} could be moved to {}", from, to));
	return static_cast<double>(moved) / spent / 1e6;
}

Result<DriveFigures> measure_drive(const std::string &folder, uint64_t file_bytes,
				   uint32_t block_bytes, double seconds)
{
	auto run = DriveRun::create(folder, file_bytes);
	if (!run)
		return run.error();
	DriveFigures figures;
	Histogram times;
	auto written = (*run)->pass(IoRequest::Op::Write, seconds);
	if (!written)
		return written.error();
	auto read = (*run)->pass(IoRequest::Op::Read, seconds);
	if (!read)
		return read.error();
	if (auto blocks = (*run)->random_blocks(block_bytes, seconds, times); !blocks)
		return blocks.error();
	figures.write_MBps = *written / 1e6;
	figures.read_MBps = *read / 1e6;
	figures.block_read_p50_ns = times.permille(500);
	figures.block_read_p99_ns = times.permille(990);
	return figures;
}

} // namespace cxlkv
