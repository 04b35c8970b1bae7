/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The spill store beside fio on the same file with the same I/O size and depth,
 * beside pread + memcpy + CRC32C for single blocks, and beside one file a block,
 * which is what engines' file tiers do. All in one run. A virtual disk's speed
 * changes from second to second: each round measures both, the first of them in
 * turns, and what counts is the median of the rounds' ratios. CXL_KV_BENCH_DIR
 * says where (default /var/tmp).
 */
#include "base/fd.h"
#include "base/log.h"
#include "sys/spill_store.h"
#include "sys/spill_store_disk.h"
#include "sys/spill_store_file.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace cxlkv;

namespace {

constexpr uint32_t kBlockBytes = 64 << 10;
constexpr uint32_t kExtentBytes = 1 << 20;
constexpr uint32_t kDepth = 16;
constexpr uint32_t kBlocks = kExtentBytes / kBlockBytes; /* of an extent */
constexpr uint64_t kBytes = 512ull << 20;                /* of a pass */
constexpr uint32_t kBuffers = 2 * kDepth; /* half is filled or verified, half in flight */
constexpr uint64_t kArena = 1;
constexpr int kRounds = 15;

struct Rate {
	double MBps = 0;
	double cpu_s_per_GiB = 0;
};

double now_s()
{
	return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
		.count();
}

double cpu_s()
{
	rusage u;
	getrusage(RUSAGE_SELF, &u);
	auto s = [](timeval t) {
		return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
	};
	return s(u.ru_utime) + s(u.ru_stime);
}

Rate measure(uint64_t bytes, const std::function<void()> &work)
{
	double wall = now_s(), cpu = cpu_s();
	work();
	wall = now_s() - wall;
	cpu = cpu_s() - cpu;
	return {static_cast<double>(bytes) / wall / 1e6,
		cpu / (static_cast<double>(bytes) / (1 << 30))};
}

[[noreturn]] void die(const std::string &why)
{
	fmt::print(stderr, "store_bench: {}\n", why);
	exit(1);
}

/*
 * One pass of fio over the store's file, past its superblocks: registered buffers
 * and file, as the store's. The store's buffers are huge pages; fio has such only
 * where its malloc is told to.
 */
Rate fio(const std::string &path, const char *rw, bool huge_pages)
{
	std::string command = fmt::format(
		"{} fio --name=x --filename={} --offset=64M --rw={} --bs={} --iodepth={} --size={} "
		"--ioengine=io_uring "
		"--direct=1 --fixedbufs=1 --registerfiles=1 --scramble_buffers=0 "
		"--output-format=json 2>/dev/null",
		huge_pages ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1" : "", path, rw, kExtentBytes,
		kDepth, kBytes);
	FILE *pipe = popen(command.c_str(), "r");
	std::string text;
	char part[4096];
	for (size_t n; pipe && (n = fread(part, 1, sizeof(part), pipe)) > 0;)
		text.append(part, n);
	if (!pipe || pclose(pipe) != 0)
		die("fio failed; is it installed? (make deps)");
	auto job = nlohmann::json::parse(text)["jobs"][0];
	auto &side = job[rw];
	double runtime_s = side["runtime"].get<double>() / 1e3;
	double cpu =
		(job["usr_cpu"].get<double>() + job["sys_cpu"].get<double>()) / 100 * runtime_s;
	return {side["bw_bytes"].get<double>() / 1e6,
		cpu / (static_cast<double>(kBytes) / (1 << 30))};
}

class Memory {
public:
	Memory() : bytes_(aligned_buffer(kBytes))
	{
		std::mt19937_64 random(1);
		auto *words = reinterpret_cast<uint64_t *>(bytes_.get());
		for (uint64_t i = 0; i < kBytes / 8; i++)
			words[i] = random();
	}
	[[nodiscard]] std::byte *extent(uint64_t i) const
	{
		return bytes_.get() + i * kExtentBytes;
	}
	[[nodiscard]] std::byte *block(uint64_t i) const { return bytes_.get() + i * kBlockBytes; }

private:
	AlignedBuffer bytes_;
};

std::unique_ptr<SpillStore> open_store(const std::string &path)
{
	StoreOptions options;
	options.path = path;
	options.size_bytes = 4 * kBytes;
	options.extent_bytes = kExtentBytes;
	options.queue_depth = kDepth;
	options.nr_buffers = kBuffers;
	auto store = SpillStore::open(options);
	if (!store)
		die(store.error().what);
	return std::move(*store);
}

void wait_for(SpillStore &store)
{
	pollfd waiter{store.event_fd(), POLLIN, 0};
	poll(&waiter, 1, 1000);
}

/* Memory to store with one memcpy. A spill's copy costs more, see copy_out_of_an_arena(). */
Rate store_write(SpillStore &store, const Memory &memory, uint32_t generation)
{
	store.drop_arena(kArena);
	if (!store.sync())
		die("sync");
	return measure(kBytes, [&] {
		uint64_t next = 0, finished = 0, nr = kBytes / kExtentBytes;
		while (finished < nr) {
			Bounce buffer;
			while (next < nr && (buffer = store.take_buffer()).data) {
				auto first = static_cast<uint32_t>(next * kBlocks);
				auto queued = store.write(
					kArena, first, kBlocks, kBlockBytes, generation, buffer,
					next++, 0, [&](uint32_t i, uint32_t n, std::byte *to) {
						memcpy(to, memory.block(first + i),
						       size_t{n} * kBlockBytes);
						return 0;
					});
				if (!queued)
					die(queued.error().what);
			}
			wait_for(store);
			for (StoreCompletion &one : store.poll()) {
				store.give_buffer(one.buffer);
				for (uint32_t i = 0; i < kBlocks; i++) {
					if (one.results[i])
						die("write failed");
					store.commit({kArena, static_cast<uint32_t>(
								      one.tag * kBlocks + i)});
				}
				finished++;
			}
		}
	});
}

/* Store to memory, copied as a restore does. */
Rate store_read(SpillStore &store, const Memory &memory)
{
	return measure(kBytes, [&] {
		uint64_t next = 0, finished = 0, nr = kBytes / kExtentBytes;
		while (finished < nr) {
			Bounce buffer;
			while (next < nr && (buffer = store.take_buffer()).data) {
				auto queued =
					store.read(kArena, static_cast<uint32_t>(next * kBlocks),
						   kBlocks, kBlockBytes, buffer, next);
				next++;
				if (!queued)
					die(queued.error().what);
			}
			wait_for(store);
			for (StoreCompletion &one : store.poll()) {
				for (int result : one.results) {
					if (result)
						die("read failed");
				}
				memcpy(memory.extent(one.tag), one.buffer.data, kExtentBytes);
				store.give_buffer(one.buffer);
				finished++;
			}
		}
	});
}

/*
 * One memcpy and one CRC32C over the same bytes. What must be copied comes from
 * or goes to memory that nobody has in a cache; as many buffers as the store has
 * are on the other side.
 */
Rate copy_and_checksum(const Memory &memory, std::byte *buffers, bool out)
{
	return measure(kBytes, [&] {
		uint32_t crc = 0;
		for (uint64_t i = 0; i < kBytes / kExtentBytes; i++) {
			std::byte *buffer = buffers + i % kBuffers * kExtentBytes;
			if (out)
				memcpy(buffer, memory.extent(i), kExtentBytes);
			crc = disk::crc32c(crc, {buffer, kExtentBytes});
			if (!out)
				memcpy(memory.extent(i), buffer, kExtentBytes);
		}
		/* The value is used, so that it is computed. */
		if (crc == 1)
			fmt::print("#\n");
	});
}

double percentile(std::vector<double> &values, double p)
{
	std::sort(values.begin(), values.end());
	return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

/* One block at a time through the store and, in turns, by pread: us. */
void single_blocks(SpillStore &store, const std::string &path, const Memory &memory)
{
	std::vector<double> ours, bare;
	std::mt19937_64 random(2);
	int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT);
	AlignedBuffer page = aligned_buffer(kBlockBytes);

	for (int i = 0; i < 8000; i++) {
		uint64_t block = random() % (kBytes / kBlockBytes);
		double start = now_s();
		if (i % 2) {
			Bounce buffer = store.take_buffer();
			auto queued = store.read(kArena, static_cast<uint32_t>(block), 1,
						 kBlockBytes, buffer, 0);
			std::vector<StoreCompletion> done;
			while (queued && (done = store.poll()).empty())
				wait_for(store);
			if (!queued || done[0].results[0])
				die("single read failed");
			memcpy(memory.block(block), buffer.data, kBlockBytes);
			store.give_buffer(buffer);
			ours.push_back((now_s() - start) * 1e6);
		} else {
			auto at = static_cast<off_t>((64u << 20) + block * kBlockBytes);
			if (pread(fd, page.get(), kBlockBytes, at) != kBlockBytes)
				die("pread failed");
			memcpy(memory.block(block), page.get(), kBlockBytes);
			if (disk::crc32c(0, {page.get(), kBlockBytes}) == 1)
				fmt::print("#\n");
			bare.push_back((now_s() - start) * 1e6);
		}
	}
	close(fd);
	for (double p : {0.5, 0.99}) {
		double a = percentile(ours, p), b = percentile(bare, p);
		fmt::print("single block p{:<3} store {:7.1f} us   pread+memcpy+crc {:7.1f} us   "
			   "ratio {:.3f}\n",
			   p * 100, a, b, a / b);
	}
}

/* Each block a file of its own, by as many threads as the store has I/Os in flight. */
Rate file_per_block(const std::string &directory, const Memory &memory, bool writing)
{
	return measure(kBytes, [&] {
		std::vector<std::jthread> threads;
		for (uint32_t t = 0; t < kDepth; t++)
			threads.emplace_back([&, t] {
				for (uint64_t i = t; i < kBytes / kBlockBytes; i += kDepth) {
					std::string name = fmt::format("{}/{}", directory, i);
					int flags = writing ? O_WRONLY | O_CREAT | O_DIRECT
							    : O_RDONLY | O_DIRECT;
					int fd = ::open(name.c_str(), flags, 0600);
					ssize_t n = writing ? pwrite(fd, memory.block(i),
								     kBlockBytes, 0)
							    : pread(fd, memory.block(i),
								    kBlockBytes, 0);
					close(fd);
					if (n != kBlockBytes)
						die("file per block failed");
				}
			});
	});
}

double median(std::vector<double> values)
{
	return percentile(values, 0.5);
}

/*
 * A spill may not touch an arena's mapping, whose holes are faults: it reads the
 * memfd, which the kernel copies page by page. Beside a memcpy of as much.
 */
void copy_out_of_an_arena(const Memory &memory, std::byte *buffers)
{
	Fd fd(memfd_create("arena", MFD_CLOEXEC));
	std::vector<double> by_pread, by_memcpy;

	if (!fd || pwrite(fd.get(), memory.extent(0), kBytes, 0) != kBytes)
		die("memfd");
	auto copy = [&](const std::function<bool(std::byte *, uint64_t)> &one) {
		return measure(kBytes,
			       [&] {
				       for (uint64_t i = 0; i < kBytes / kExtentBytes; i++)
					       if (!one(buffers + i % kBuffers * kExtentBytes, i))
						       die("copy");
			       })
			.cpu_s_per_GiB;
	};
	for (int i = 0; i < kRounds; i++) {
		by_pread.push_back(copy([&](std::byte *to, uint64_t extent) {
			return pread(fd.get(), to, kExtentBytes,
				     static_cast<off_t>(extent * kExtentBytes)) == kExtentBytes;
		}));
		by_memcpy.push_back(copy([&](std::byte *to, uint64_t extent) {
			memcpy(to, memory.extent(extent), kExtentBytes);
			return true;
		}));
	}
	fmt::print("copy out of an arena, CPU s/GiB: pread of its memfd {:.3f}   memcpy {:.3f}\n",
		   median(by_pread), median(by_memcpy));
}

/* Store, fio, and the memcpy and CRC32C that fio does not do, round by round. */
struct Comparison {
	const char *what = "";
	std::vector<double> ours_MBps, fio_MBps, speed, ours_cpu, allowed_cpu, cpu;

	void add(const Rate &ours, const Rate &theirs, const Rate &extra)
	{
		double allowed = theirs.cpu_s_per_GiB + extra.cpu_s_per_GiB;
		ours_MBps.push_back(ours.MBps);
		fio_MBps.push_back(theirs.MBps);
		speed.push_back(ours.MBps / theirs.MBps);
		ours_cpu.push_back(ours.cpu_s_per_GiB);
		allowed_cpu.push_back(allowed);
		cpu.push_back(ours.cpu_s_per_GiB / allowed);
	}
	void print() const
	{
		std::vector<double> sorted = speed;
		double low = percentile(sorted, 0.25), high = percentile(sorted, 0.75);
		fmt::print("{:<6} store {:6.0f} MB/s   fio {:6.0f} MB/s   ratio {:.3f} (quartiles "
			   "{:.3f} to {:.3f})\n",
			   what, median(ours_MBps), median(fio_MBps), median(speed), low, high);
		fmt::print("{:<6} CPU s/GiB: store {:.3f}   fio+memcpy+crc {:.3f}   ratio {:.2f}\n",
			   "", median(ours_cpu), median(allowed_cpu), median(cpu));
	}
};

struct Round {
	Rate our_write, our_read, fio_write, fio_read;
};

Round run_round(const std::string &path, const Memory &memory, bool fio_first, bool huge_pages)
{
	Round round;
	auto run_fio = [&] {
		round.fio_write = fio(path, "write", huge_pages);
		round.fio_read = fio(path, "read", huge_pages);
	};

	if (fio_first)
		run_fio();
	{
		auto store = open_store(path);
		round.our_write = store_write(*store, memory, 1);
		round.our_read = store_read(*store, memory);
	}
	if (!fio_first)
		run_fio();
	return round;
}

struct Comparisons {
	Comparison writes, reads;
};

Comparisons compare_with_fio(const std::string &path, const Memory &memory, std::byte *buffers,
			     bool huge_pages)
{
	Comparisons out{};

	out.writes.what = "write";
	out.reads.what = "read";
	for (int i = 0; i < kRounds; i++) {
		Round round = run_round(path, memory, i % 2, huge_pages);
		out.writes.add(round.our_write, round.fio_write,
			       copy_and_checksum(memory, buffers, true));
		out.reads.add(round.our_read, round.fio_read,
			      copy_and_checksum(memory, buffers, false));
	}
	fmt::print("1 MiB extents, depth {}, {} MiB a pass, medians of {} rounds, fio {}:\n",
		   kDepth, kBytes >> 20, kRounds, huge_pages ? "with huge pages" : "as it is");
	out.writes.print();
	out.reads.print();
	return out;
}

/* Beside the store's speed in the same run. */
void compare_files(const std::string &directory, const Memory &memory, const Comparison &writes,
		   const Comparison &reads)
{
	std::filesystem::create_directory(directory);
	Rate file_w = file_per_block(directory, memory, true),
	     file_r = file_per_block(directory, memory, false);
	fmt::print("file a block: write {:.0f} MB/s, store {:.2f} times that; read {:.0f} MB/s, "
		   "store {:.2f} times that\n",
		   file_w.MBps, median(writes.ours_MBps) / file_w.MBps, file_r.MBps,
		   median(reads.ours_MBps) / file_r.MBps);
}

} // namespace

int main()
{
	const char *base = getenv("CXL_KV_BENCH_DIR");
	std::string directory =
		std::string(base ? base : "/var/tmp") + "/cxl-kv-store-bench-XXXXXX";
	if (!mkdtemp(directory.data()))
		die("no scratch directory; set CXL_KV_BENCH_DIR");
	set_log_level(Level::Warning);
	std::string path = directory + "/spill";
	Memory memory;
	AlignedBuffer buffers = aligned_buffer(size_t{kBuffers} * kExtentBytes);
	memset(buffers.get(), 1, size_t{kBuffers} * kExtentBytes);
	/* The first pass over a new file pays for its blocks: all of it is written first. */
	{
		auto store = open_store(path);
		for (uint32_t i = 0; i < 5; i++)
			store_write(*store, memory, i);
	}
	auto [writes, reads] = compare_with_fio(path, memory, buffers.get(), false);
	{
		auto store = open_store(path);
		store_write(*store, memory, 1);
		single_blocks(*store, path, memory);
	}
	compare_with_fio(path, memory, buffers.get(), true);
	copy_out_of_an_arena(memory, buffers.get());
	compare_files(directory + "/blocks", memory, writes, reads);
	std::filesystem::remove_all(directory);
	return 0;
}
