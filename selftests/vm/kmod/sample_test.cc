/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sampling: finds the pages that are touched and no others, tells writes from
 * reads, loses nothing of what it clears, and survives what a client does to
 * the range meanwhile. Results are taken from the tracepoint, as BPF does.
 */
#include "vm/kmod/device.h"

#include <atomic>
#include <chrono>
#include <map>
#include <poll.h>
#include <set>
#include <sys/stat.h>
#include <sys/swap.h>
#include <thread>

using namespace cxlkv;
using namespace cxlkv::test;

namespace {

[[maybe_unused]] auto *const environment = testing::AddGlobalTestEnvironment(new ModuleLoaded);

constexpr size_t page = 4096;
/* Who was kept from the CPU in a pass pays that back before the next one: a loaded host is slow. */
constexpr auto a_stall = std::chrono::minutes(5);

void write_text(const std::string &path, const char *text)
{
	std::ofstream(path) << text;
}

/* What cxl_kv_access reported: page -> times seen, and times seen written. */
struct Seen {
	std::map<uint64_t, int> touched, written;

	[[nodiscard]] std::set<uint64_t> pages() const
	{
		std::set<uint64_t> result;
		for (auto &[at, times] : touched)
			result.insert(at);
		return result;
	}
};

/* The tracepoint, read from an instance of tracefs of our own. */
class Trace {
public:
	Trace()
	{
		mkdir(dir_.c_str(), 0700);
		write_text(dir_ + "events/cxl_kv/cxl_kv_access/enable", "1");
		pipe_.reset(open((dir_ + "trace_pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
		EXPECT_TRUE(pipe_);
	}
	~Trace()
	{
		write_text(dir_ + "events/cxl_kv/cxl_kv_access/enable", "0");
		pipe_.reset();
		rmdir(dir_.c_str());
	}
	Seen take()
	{
		Seen seen;
		char buf[65536];
		ssize_t n;

		while ((n = read(pipe_.get(), buf, sizeof(buf))) > 0)
			rest_.append(buf, static_cast<size_t>(n));
		for (size_t end; (end = rest_.find('\n')) != std::string::npos;
		     rest_.erase(0, end + 1))
			parse(rest_.substr(0, end), seen);
		return seen;
	}

private:
	static void parse(const std::string &line, Seen &seen)
	{
		unsigned long long first = 0, touched = 0, written = 0;
		size_t at = line.find("first_page=");

		if (at == std::string::npos ||
		    sscanf(line.c_str() + at, "first_page=%llu touched=%llx written=%llx", &first,
			   &touched, &written) != 3)
			return;
		EXPECT_EQ(first % 64, 0u);
		EXPECT_EQ(written & ~touched, 0u);
		for (unsigned i = 0; i < 64; i++) {
			if (touched >> i & 1)
				seen.touched[first + i]++;
			if (written >> i & 1)
				seen.written[first + i]++;
		}
	}

	std::string dir_ = "/sys/kernel/tracing/instances/cxl_kv_test/";
	std::string rest_;
	Fd pipe_;
};

cxl_kv_geometry geometry_of(size_t bytes)
{
	cxl_kv_geometry shape = small_geometry();

	shape.tokens_per_slot = static_cast<uint32_t>(256 * (bytes / (512 << 10)));
	return shape;
}

/* An arena whose pages are all there: 16 MiB, or fewer where each page costs a fault a pass. */
class Sampling : public testing::Test {
protected:
	explicit Sampling(size_t bytes = 16 << 20) : parts(geometry_of(bytes)) {}
	void SetUp() override
	{
		memset(parts.map.data(), 1, parts.bytes);
		ASSERT_EQ(parts.register_on(client, &arena), 0);
		ASSERT_EQ(attach(manager), 0);
		dir = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/sample/";
	}
	int sample(uint32_t way, uint32_t interval_ms = 50,
		   uint32_t flags = CXL_KV_SAMPLE_FLUSH_TLB, uint32_t budget_permil = 1000)
	{
		cxl_kv_sample_set arg{sizeof(arg), flags, arena, way, interval_ms, budget_permil};

		return call(manager, CXL_KV_IOC_SAMPLE_SET, &arg);
	}
	uint64_t passes() { return strtoull(read_file(dir + "passes").c_str(), nullptr, 10); }
	/* Runs @work again and again until @nr more passes have begun and ended. */
	void during_passes(uint64_t nr, const std::function<void()> &work)
	{
		uint64_t until = passes() + nr + 1;
		auto deadline = std::chrono::steady_clock::now() + a_stall;

		while (passes() < until) {
			ASSERT_LT(std::chrono::steady_clock::now(), deadline)
				<< "passes stand still";
			work();
			usleep(2000);
		}
	}
	void touch(uint64_t first, uint64_t nr, bool write)
	{
		volatile std::byte *at = parts.map.data();

		for (uint64_t i = first; i < first + nr; i++) {
			if (write)
				at[i * page] = std::byte{2};
			else
				(void)at[i * page];
		}
	}
	static std::set<uint64_t> range(uint64_t first, uint64_t nr)
	{
		std::set<uint64_t> result;

		for (uint64_t i = 0; i < nr; i++)
			result.insert(first + i);
		return result;
	}

	ArenaParts parts;
	Fd client = open_device(), manager = open_device();
	uint32_t arena = 0;
	std::string dir;
	Trace trace;
};

class SmallSampling : public Sampling {
protected:
	SmallSampling() : Sampling(1 << 20) {}
};

TEST_F(Sampling, FindsTheHotPagesAndNoOthers)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(1, [] {}); /* what was touched before */
	trace.take();
	during_passes(3, [&] { touch(1000, 16, false); });
	Seen seen = trace.take();
	EXPECT_EQ(seen.pages(), range(1000, 16));
	for (auto &[at, times] : seen.touched)
		EXPECT_GE(times, 3) << "page " << at;
	printf("# 64 KiB of 16 MiB: %zu pages found of 16\n", seen.touched.size());
}

TEST_F(Sampling, SeesNothingWhereNothingIsTouched)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(1, [] {});
	trace.take();
	during_passes(3, [] {});
	EXPECT_TRUE(trace.take().touched.empty());
}

TEST_F(Sampling, TellsWritesFromReads)
{
	/* A page a block, 512 blocks a head: page 512 * i is in head i % 4. */
	std::string heads = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/heads/";
	auto count = [&](const char *file) {
		return strtoull(read_file(heads + file).c_str(), nullptr, 10);
	};

	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(1, [] {});
	trace.take();
	auto touched_1 = count("1/touched_pages"), written_1 = count("1/written_pages");
	auto touched_3 = count("3/touched_pages"), written_3 = count("3/written_pages");
	during_passes(3, [&] {
		touch(512 * 3, 40, false);
		touch(512 * 5 + 7, 70, true);
	});
	Seen seen = trace.take();
	std::set<uint64_t> written;
	for (auto &[at, times] : seen.written)
		written.insert(at);
	EXPECT_EQ(written, range(512 * 5 + 7, 70));
	EXPECT_EQ(seen.pages().size(), 110u);

	EXPECT_GE(count("1/written_pages") - written_1, 70u * 3);
	EXPECT_EQ(count("1/written_pages") - written_1, count("1/touched_pages") - touched_1);
	EXPECT_GE(count("3/touched_pages") - touched_3, 40u * 3);
	EXPECT_EQ(count("3/written_pages"), written_3);
}

/* kB of the arena that the kernel believes referenced, as reclaim sees it. */
uint64_t referenced_kb(const void *map)
{
	std::ifstream smaps("/proc/self/smaps");
	std::string line;
	char start[32];
	bool inside = false;

	snprintf(start, sizeof(start), "%lx-", reinterpret_cast<unsigned long>(map));
	while (std::getline(smaps, line)) {
		inside |= line.rfind(start, 0) == 0;
		if (inside && line.rfind("Referenced:", 0) == 0)
			return strtoull(line.c_str() + 11, nullptr, 10);
	}
	return 0;
}

TEST_F(Sampling, LeavesPagesReferencedForReclaim)
{
	ASSERT_EQ(referenced_kb(parts.map.data()), parts.bytes / 1024);
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(2, [] {});
	EXPECT_EQ(trace.take().touched.size(), parts.bytes / page) << "every bit was cleared";
	EXPECT_EQ(referenced_kb(parts.map.data()), parts.bytes / 1024);
}

TEST_F(Sampling, WithoutAFlushReportsNoWrites)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 50, 0), 0);
	during_passes(2, [&] { touch(0, 4096, true); });
	EXPECT_TRUE(trace.take().written.empty());
}

TEST_F(SmallSampling, ByRefaultFindsTheHotBlocks)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_REFAULT, 50, 0), 0);
	during_passes(1, [] {});
	trace.take();
	during_passes(3, [&] { touch(200, 16, true); });
	Seen seen = trace.take();
	EXPECT_EQ(seen.pages(), range(200, 16));
	EXPECT_EQ(seen.written.size(), 16u);
}

TEST_F(SmallSampling, ByRefaultKeepsTheData)
{
	auto *words = reinterpret_cast<std::atomic<uint64_t> *>(parts.map.data());
	uint64_t count = 0;

	ASSERT_EQ(sample(CXL_KV_SAMPLE_REFAULT, 10, 0), 0);
	during_passes(5, [&] {
		count++;
		for (size_t i = 0; i < 256; i++)
			words[i * page / 8].fetch_add(1);
	});
	for (size_t i = 0; i < 256; i++)
		ASSERT_EQ(words[i * page / 8].load(), 0x0101010101010101u + count) << i;
}

TEST_F(Sampling, HandlesHugePages)
{
	std::string shmem = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

	if (access(shmem.c_str(), W_OK))
		GTEST_SKIP() << "no huge pages for shmem";
	write_text(shmem, "force");
	ASSERT_EQ(unregister(client, arena), 0);
	size_t huge = 2 << 20;
	Fd memory = sealed_memfd(parts.bytes);
	/* Aligned in memory as in the file, or no huge page can be mapped. */
	Mapping reserve(
		mmap(nullptr, parts.bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
		parts.bytes + huge);
	auto at = (reinterpret_cast<uintptr_t>(reserve.data()) + huge - 1) & ~(huge - 1);
	void *map = mmap(reinterpret_cast<void *>(at), parts.bytes, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, memory.get(), 0);
	ASSERT_NE(map, MAP_FAILED);
	memset(map, 1, parts.bytes);
	write_text(shmem, "never");

	cxl_kv_arena_register arg = parts.argument();
	arg.memory_fd = memory.get();
	arg.base = at;
	ASSERT_EQ(call(client, CXL_KV_IOC_ARENA_REGISTER, &arg), 0);
	arena = arg.arena;
	dir = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/sample/";
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(1, [] {});
	trace.take();
	during_passes(2, [&] { static_cast<volatile char *>(map)[3 * huge + 5] = 1; });
	Seen seen = trace.take();
	EXPECT_EQ(seen.pages(), range(3 * 512, 512)) << "a huge page is touched as a whole";
	EXPECT_EQ(seen.written.size(), 512u);
}

/* The pages of 1 GiB are there, but only 16 of them are touched. */
class LargeSampling : public Sampling {
protected:
	LargeSampling() : Sampling(1 << 30) {}
};

TEST_F(LargeSampling, FindsTheHotSetWithinThreeIntervals)
{
	constexpr uint32_t interval_ms = 2000;
	auto number = [&](const char *file) {
		return strtoull(read_file(dir + file).c_str(), nullptr, 10);
	};
	std::set<uint64_t> hot, found;

	for (uint64_t i = 0; i < 16; i++)
		hot.insert((i * 40503 + 977) % (parts.bytes / page));
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, interval_ms), 0);
	during_passes(1, [] {}); /* what was touched before */
	auto first_ns = number("spent_ns");
	auto first_pages = number("touched_pages");
	trace.take();
	uint64_t begin = passes();
	while (found != hot && passes() < begin + 20) {
		for (uint64_t at : hot)
			touch(at, 1, false);
		usleep(2000);
		for (uint64_t at : trace.take().pages())
			found.insert(at);
	}
	uint64_t intervals = passes() - begin;
	printf("# 64 KiB of 1 GiB: %zu pages found of 16, after %lu passes\n"
	       "# a pass over 1 GiB that was touched: %.0f us per 1,000 pages; over one that was "
	       "not, but for these: %.1f us\n",
	       found.size(), intervals,
	       static_cast<double>(first_ns) / static_cast<double>(first_pages),
	       static_cast<double>(number("spent_ns") - first_ns) /
		       static_cast<double>(intervals ? intervals : 1) /
		       static_cast<double>(parts.bytes / page));
	EXPECT_EQ(found, hot);
	EXPECT_LE(intervals, 3u);
}

TEST_F(Sampling, ChecksItsArguments)
{
	EXPECT_EQ(sample(3), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 9), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 60001), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 50, CXL_KV_SAMPLE_FLUSH_TLB, 0), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 50, CXL_KV_SAMPLE_FLUSH_TLB, 1001), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_REFAULT, 50, CXL_KV_SAMPLE_FLUSH_TLB), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_OFF), EINVAL);
	EXPECT_EQ(sample(CXL_KV_SAMPLE_OFF, 0, 0, 0), 0);
	arena += 1000;
	EXPECT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), ENOENT);
}

TEST_F(Sampling, EndsWithTheManager)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(1, [] {});
	EXPECT_EQ(read_file(dir + "way"), "accessed");
	manager.reset();
	EXPECT_EQ(read_file(dir + "way"), "off");
	uint64_t now = passes();
	usleep(300 * 1000); /* six intervals, in which nothing may happen */
	EXPECT_EQ(passes(), now);
}

/* What a pass costs when everything was touched and written; nothing is asserted. */
TEST_F(Sampling, CostOfATouchedPage)
{
	auto number = [&](const char *file) {
		return strtoull(read_file(dir + file).c_str(), nullptr, 10);
	};

	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED), 0);
	during_passes(3, [&] { touch(0, 4096, true); });
	printf("# accessed bits: %.0f us per 1,000 touched pages\n",
	       static_cast<double>(number("spent_ns")) /
		       static_cast<double>(number("touched_pages")));
}

TEST_F(Sampling, StaysWithinItsBudget)
{
	auto spent_ns = [&] { return strtoull(read_file(dir + "spent_ns").c_str(), nullptr, 10); };
	auto start = std::chrono::steady_clock::now();

	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 20, CXL_KV_SAMPLE_FLUSH_TLB, 20), 0);
	while (std::chrono::steady_clock::now() < start + std::chrono::seconds(4))
		touch(0, 4096, true);
	auto elapsed = std::chrono::steady_clock::now() - start;
	double share = static_cast<double>(spent_ns()) / static_cast<double>(elapsed.count());
	printf("# budget 20 permil, spent %.1f permil, %lu passes\n", share * 1000, passes());
	EXPECT_GT(spent_ns(), 0u);
	/* The last look may overrun, by as much as a loaded machine takes for a page table. */
	EXPECT_LT(share, 0.2);
}

TEST_F(Sampling, SurvivesWhatTheClientDoesToTheRange)
{
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 10), 0);
	during_passes(1, [] {});
	/* A hole, a foreign mapping in it, and the rest of the file moved elsewhere. */
	ASSERT_EQ(munmap(parts.map.data() + 512 * page, 512 * page), 0);
	void *foreign = mmap(parts.map.data() + 512 * page, 16 * page, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	ASSERT_NE(foreign, MAP_FAILED);
	void *moved =
		mremap(parts.map.data() + 1024 * page, 512 * page, 512 * page,
		       MREMAP_MAYMOVE | MREMAP_FIXED, parts.map.data() + parts.bytes + (64 << 20));
	ASSERT_NE(moved, MAP_FAILED);
	during_passes(1, [] {});
	trace.take();
	during_passes(3, [&] {
		memset(foreign, 3, 16 * page);
		memset(moved, 3, 16 * page);
		touch(100, 1, true);
	});
	EXPECT_EQ(trace.take().pages(), range(100, 1));
	munmap(moved, 512 * page);
}

TEST_F(SmallSampling, SurvivesAClientThatDies)
{
	ASSERT_EQ(unregister(client, arena), 0);
	for (int i = 0; i < 4; i++) {
		int ready[2];
		ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
		pid_t pid = fork();
		if (pid == 0) {
			Fd device = open_device();
			ArenaParts own(geometry_of(1 << 20));
			uint32_t number = 0;

			if (own.register_on(device, &number) || write(ready[1], &number, 4) != 4)
				_exit(1);
			for (;;)
				memset(own.map.data(), 5, own.bytes);
		}
		ASSERT_EQ(read(ready[0], &arena, 4), 4);
		dir = "/sys/class/cxl_kv/arena" + std::to_string(arena) + "/sample/";
		ASSERT_EQ(sample(i % 2 ? CXL_KV_SAMPLE_ACCESSED : CXL_KV_SAMPLE_REFAULT, 10,
				 i % 2 ? CXL_KV_SAMPLE_FLUSH_TLB : 0),
			  0);
		during_passes(1, [] {});
		kill(pid, SIGKILL);
		waitpid(pid, nullptr, 0);
		close(ready[0]);
		close(ready[1]);
	}
}

/* A block device to swap to; empty when this kernel has none. */
std::string swap_device()
{
	if (system("modprobe zram 2>/dev/null") || access("/sys/block/zram0", F_OK))
		return "";
	write_text("/sys/block/zram0/disksize", "128M");
	if (system("mkswap /dev/zram0 >/dev/null") || swapon("/dev/zram0", 0))
		return "";
	return "/dev/zram0";
}

std::string swapped_out()
{
	std::ifstream vmstat("/proc/vmstat");
	std::string name, value;

	while (vmstat >> name >> value)
		if (name == "pswpout")
			return value;
	return "?";
}

/*
 * The trap of clearing dirty bits: reclaim takes a page whose entry is clean
 * for one that no CPU can be writing to. Each word is written by one thread
 * while its page is sampled and swapped out again and again.
 */
TEST_F(Sampling, LosesNoWriteToReclaim)
{
	std::string swap = swap_device();
	std::atomic<bool> stop{false};
	constexpr size_t nr = 64;
	uint64_t wrong = 0, rounds = 0;

	if (swap.empty())
		GTEST_SKIP() << "no zram to swap to";
	memset(parts.map.data(), 0, nr * page);
	ASSERT_EQ(sample(CXL_KV_SAMPLE_ACCESSED, 10), 0);
	std::thread writer([&] {
		volatile uint64_t *words = reinterpret_cast<uint64_t *>(parts.map.data());

		for (uint64_t value = 0; !stop; value++, rounds++) {
			for (size_t i = 0; i < nr; i++) {
				uint64_t was = words[i * page / 8];
				wrong += was != value;
				words[i * page / 8] = value + 1;
			}
		}
	});
	auto end = std::chrono::steady_clock::now() + std::chrono::seconds(8);
	while (std::chrono::steady_clock::now() < end)
		madvise(parts.map.data(), nr * page, MADV_PAGEOUT);
	stop = true;
	writer.join();
	swapoff(swap.c_str());
	printf("# %lu rounds of %zu words, %s swapped out\n", rounds, nr, swapped_out().c_str());
	EXPECT_GT(rounds, 0u);
	EXPECT_EQ(wrong, 0u);
}

} // namespace
